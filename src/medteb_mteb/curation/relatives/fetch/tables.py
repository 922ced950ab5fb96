"""Categories, search terms and studies from which the tasks of English MedTEB are built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from medteb_mteb.curation.relatives.fetch.entrez import MAX_PUBMED_IDS
from medteb_mteb.english.table import PREPRINT_DAYS

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "PMC_TERMS",
    "PREPRINT_TASKS",
    "PUBMED_TASKS",
    "PUBMED_TERM",
    "TRIAL_FIELDS",
    "WIKI_CATEGORIES",
    "WIKI_DEPTHS",
    "WIKI_PAIRS",
    "extent_of",
    "most_of",
]

#: Maximum pages of a category and articles of a term, by type of task, as published; ours for pairs.
MAX_PER_LABEL = {"classification": 2_000, "clustering": 1_000, "pairclassification": 2_000}
#: Number of studies as published: 17 pages of 1,000.
PUBLISHED_STUDIES, STUDIES_PER_PAGE = 17_000, 1_000
PUBMED_TERM = "medicine"
#: Maximum number of preprints: that of a retrieval task's rows.
MAX_PREPRINTS = 16_384

_SYNDROMES = tuple(
    f"Syndromes affecting {part}" for part in ("the eye", "blood", "the nervous system", "hearing")
)
_DIAGNOSTIC_FIELDS = (
    "Radiology",
    "Pathology",
    "Nuclear medicine",
    "Anesthesiology",
    "Intensive care medicine",
)
_IMAGING_TYPES = ("MRI", "CT scan", "Ultrasound", "X-ray", "PET scan")

#: Categories of Wikipedia by task; each category is a label.
WIKI_CATEGORIES: Mapping[str, tuple[str, ...]] = {
    "classification_wiki_syndromes_dataset": _SYNDROMES,
    "classification_wiki_pain_vs_fever_dataset": ("Pain", "Fever"),
    "classification_wiki_core_medical_specialties_dataset": (
        "Cardiology", "Neurology", "Gastroenterology", "Endocrinology", "Pulmonology",
    ),
    "classification_wiki_diagnostic_and_interdisciplinary_fields_dataset": _DIAGNOSTIC_FIELDS,
    "clustering_wiki_disease_by_system_dataset": (
        "Cardiovascular diseases", "Respiratory diseases", "Digestive diseases", "Neurological disorders",
        "Musculoskeletal disorders",
    ),
    "clustering_wiki_syndromes_dataset": _SYNDROMES,
    "clustering_wiki_broad_medical_topics_dataset": (
        "Diseases and disorders", "Therapy", "Symptoms", "Pathology",
    ),
    "clustering_wiki_surgical_specialties_dataset": (
        "Orthopedics", "Ophthalmology", "Gynaecology", "Neurosurgery", "Transplantation medicine",
    ),
    "clustering_wiki_diagnostic_and_interdisciplinary_fields_dataset": _DIAGNOSTIC_FIELDS,
    "clustering_wiki_preventive_and_community_health_dataset": (
        "Public health", "Preventive medicine", "Occupational medicine", "Sports medicine",
        "Tropical medicine",
    ),
}  # fmt: skip

#: The only pair task from Wikipedia, and its category, with two levels of subcategories.
WIKI_PAIRS: Mapping[str, tuple[str, ...]] = {
    "pairclassification_wiki_diseases_dataset": ("Diseases and disorders by system",)
}
WIKI_DEPTHS: Mapping[str, int] = {"Diseases and disorders by system": 2}

#: Search terms of PubMed Central by task; each term is a label.
PMC_TERMS: Mapping[str, tuple[str, ...]] = {
    "classification_pmc_medical_imaging_types_dataset": _IMAGING_TYPES,
    "classification_pmc_diagnostic_vs_therapeutic_dataset": ("diagnostic", "therapeutic"),
    "clustering_pmc_medical_imaging_types_dataset": _IMAGING_TYPES,
}

#: Second text by task; the first one is the official title.
TRIAL_FIELDS: Mapping[str, str] = {
    f"{kind}_clinical_trials_officialTitle_vs{field}": field
    for kind in ("pairclassification", "retrieval")
    for field in ("detailedDescription", "primaryOutcomes")
}

#: Tasks by preprint server.
PREPRINT_TASKS: Mapping[str, str] = {
    "biorxiv": "retrieval_biorxiv_dataset",
    "medrxiv": "retrieval_medrxiv_dataset",
}

PUBMED_TASKS = ("pairclassification_pubmed_pair_classification", "retrieval_pubmed_retrieval")


def most_of(task: str) -> int:
    """Return the maximum number of pages or articles per label of a task."""
    return MAX_PER_LABEL[task.partition("_")[0]]


def extent_of(source: str, tasks: tuple[str, ...], most: int | None) -> dict[str, Any]:
    """Return the extent to fetch for tasks of a source.

    Args:
        source: Name of the source.
        tasks: Names of the tasks.
        most: Maximum pages of a category, articles of a term, studies or preprints, if fewer than published.
    """
    limit = most if most is not None else 1 << 30
    if source == "clinical-trials":
        return {"studies": min(PUBLISHED_STUDIES, limit), "page": STUDIES_PER_PAGE}
    if source == "pubmed":
        return {"terms": {PUBMED_TERM: min(MAX_PUBMED_IDS, limit)}}
    if source in PREPRINT_TASKS:
        start, end = PREPRINT_DAYS
        return {"server": source, "start": start, "end": end, "preprints": min(MAX_PREPRINTS, limit)}
    labels = {**WIKI_CATEGORIES, **WIKI_PAIRS} if source == "wikipedia" else PMC_TERMS
    label_limits: dict[str, int] = {}
    for task in tasks:
        for label in labels[task]:
            label_limits[label] = max(label_limits.get(label, 0), min(most_of(task), limit))
    if source != "wikipedia":
        return {"terms": label_limits}
    deep = {label: WIKI_DEPTHS[label] for label in label_limits if label in WIKI_DEPTHS}
    return {"categories": label_limits, **({"depths": deep} if deep else {})}
