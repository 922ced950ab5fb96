"""Open APIs, and the categories, search terms and studies of the tasks of English MedTEB."""

from __future__ import annotations

from typing import Any

from medteb_mteb.tasks.english import PREPRINT_DAYS

OFFICIAL = {
    "wikipedia": "https://en.wikipedia.org",
    "pubmed": "https://eutils.ncbi.nlm.nih.gov/entrez/eutils",
    "pmc": "https://eutils.ncbi.nlm.nih.gov/entrez/eutils",
    "clinical-trials": "https://clinicaltrials.gov/api/v2",
    "biorxiv": "https://api.biorxiv.org",
    "medrxiv": "https://api.biorxiv.org",
}
#: Requests per second: the operators' limit if they state one.
PER_SECOND = {
    "wikipedia": 3.0,
    "pubmed": 3.0,
    "pmc": 3.0,
    "clinical-trials": 0.8,
    "biorxiv": 1.0,
    "medrxiv": 1.0,
}
#: Maximum pages of a category and articles of a term, by type of task, as published; ours for pairs.
MAX_PER_LABEL = {"classification": 2_000, "clustering": 1_000, "pairclassification": 2_000}
#: As published: 17 pages of 1,000 studies; as many preprints as a retrieval task has rows; NCBI's most ids.
STUDIES, STUDIES_PER_PAGE, PREPRINTS, PUBMED_IDS = 17_000, 1_000, 16_384, 9_999
PUBMED_TERM = "medicine"

_SYNDROMES = tuple(
    f"Syndromes affecting {one}" for one in ("the eye", "blood", "the nervous system", "hearing")
)
_FIELDS = ("Radiology", "Pathology", "Nuclear medicine", "Anesthesiology", "Intensive care medicine")
_IMAGING = ("MRI", "CT scan", "Ultrasound", "X-ray", "PET scan")
#: Categories of Wikipedia by task; each category is a label.
WIKI_CATEGORIES = {
    "classification_wiki_syndromes_dataset": _SYNDROMES,
    "classification_wiki_pain_vs_fever_dataset": ("Pain", "Fever"),
    "classification_wiki_core_medical_specialties_dataset": (
        "Cardiology", "Neurology", "Gastroenterology", "Endocrinology", "Pulmonology",
    ),
    "classification_wiki_diagnostic_and_interdisciplinary_fields_dataset": _FIELDS,
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
    "clustering_wiki_diagnostic_and_interdisciplinary_fields_dataset": _FIELDS,
    "clustering_wiki_preventive_and_community_health_dataset": (
        "Public health", "Preventive medicine", "Occupational medicine", "Sports medicine",
        "Tropical medicine",
    ),
}  # fmt: skip
#: The only pair task from Wikipedia; its category is read with two levels of subcategories, others with one.
WIKI_PAIRS = {"pairclassification_wiki_diseases_dataset": ("Diseases and disorders by system",)}
WIKI_DEPTHS = {"Diseases and disorders by system": 2}
#: Search terms of PubMed Central by task; each term is a label.
PMC_TERMS = {
    "classification_pmc_medical_imaging_types_dataset": _IMAGING,
    "classification_pmc_diagnostic_vs_therapeutic_dataset": ("diagnostic", "therapeutic"),
    "clustering_pmc_medical_imaging_types_dataset": _IMAGING,
}
#: Second text by task; the first one is the official title.
TRIAL_FIELDS = {
    f"{kind}_clinical_trials_officialTitle_vs{field}": field
    for kind in ("pairclassification", "retrieval")
    for field in ("detailedDescription", "primaryOutcomes")
}
PREPRINT_TASKS = {"biorxiv": "retrieval_biorxiv_dataset", "medrxiv": "retrieval_medrxiv_dataset"}

#: Discharge diagnoses of MIMIC-IV by the end of the task's name and by label.
DIAGNOSES: dict[str, dict[str, tuple[str, ...]]] = {
    "specific_Infectious_Diseases": {
        "Respiratory": ("Pneumonia", "COPD exacerbation"),
        "Soft_Tissue": ("Cellulitis",),
        "Urinary_Tract": ("Urinary tract infection",),
        "Biliary_System": ("Choledocholithiasis",),
    },
    "specific_Abdominal_Conditions": {
        "Obstructions": ("Small bowel obstruction", "Partial small bowel obstruction"),
        "Inflammatory": ("Acute appendicitis", "Acute cholecystitis", "Diverticulitis", "Pancreatitis"),
        "Pain": ("Abdominal pain", "Chest pain"),
    },
    "specific_Musculoskeletal_Disorders": {
        "Osteoarthritis": (
            "Right knee osteoarthritis", "Left knee osteoarthritis", "Right hip osteoarthritis",
            "Left hip osteoarthritis",
        ),
        "Stenosis": ("Lumbar stenosis", "Cervical stenosis"),
    },
    "specific_Neurological_Conditions": {
        "Seizure_Disorders": ("Epilepsy", "Seizure", "Seizures"),
        "Critical_Neurology": ("Acute ischemic stroke", "CNS lymphoma", "Syncope"),
    },
    "specific_Cancer_Types": {
        "Breast_Cancer": ("Right breast cancer",),
        "Prostate_Cancer": ("PROSTATE CANCER",),
        "Other": ("AML", "Peripheral Arterial Disease"),
    },
    "general_Infectious_vs_NonInfectious_Conditions": {
        "Infectious": (
            "Pneumonia", "Cellulitis", "Urinary tract infection", "Choledocholithiasis", "COPD exacerbation",
        ),
        "NonInfectious": (
            "Small bowel obstruction", "Acute appendicitis", "Pancreatitis", "Right knee osteoarthritis",
            "Epilepsy",
        ),
    },
    "general_Neurological_vs_Musculoskeletal_Conditions": {
        "Neurological": ("Seizure", "Acute ischemic stroke", "Syncope", "CNS lymphoma"),
        "Musculoskeletal": (
            "Right knee osteoarthritis", "Left knee osteoarthritis", "Lumbar stenosis", "Cervical stenosis",
        ),
    },
    "general_Mortality_vs_Survivable_Conditions": {
        "Mortality": ("Deceased", "Expired", "Patient expired", "Acute ischemic stroke"),
        "Survivable": ("Abdominal pain", "Right knee osteoarthritis", "Epilepsy", "Pneumonia"),
    },
    "general_Cancer_vs_Chronic_Conditions": {
        "Cancer": ("Right breast cancer", "PROSTATE CANCER", "AML"),
        "Chronic": (
            "Peripheral Arterial Disease", "Morbid obesity", "Lumbar stenosis", "COPD exacerbation",
        ),
    },
}  # fmt: skip
#: Days within which a patient returns, by the end of the task's name.
READMISSIONS = {"readmission_3_days": 3, "readmission_30_days": 30}
#: Two sections of a note, by the end of the task's name.
FIELD_PAIRS = {
    f"{first}_vs_{second}".replace(" ", "_"): (first, second)
    for first, second in (
        ("Chief Complaint", "Discharge Diagnosis"),
        ("History of Present Illness", "Chief Complaint"),
        ("Discharge Instructions", "History of Present Illness"),
        ("Chief Complaint", "Discharge Instructions"),
        ("History of Present Illness", "Discharge Diagnosis"),
        ("Discharge Instructions", "Chief Complaint"),
    )
}


def most_of(task: str) -> int:
    """Return the maximum number of pages or articles per label of a task."""
    return MAX_PER_LABEL[task.partition("_")[0]]


def extent_of(source: str, tasks: tuple[str, ...], most: int | None) -> dict[str, Any]:
    """Return what to fetch for tasks of a source (default: all), maybe less than published."""
    limit = most or 1 << 30
    if source == "clinical-trials":
        return {"studies": min(STUDIES, limit)}
    if source == "pubmed":
        return {"terms": {PUBMED_TERM: min(PUBMED_IDS, limit)}}
    if source in PREPRINT_TASKS:
        start, end = PREPRINT_DAYS
        return {"server": source, "start": start, "end": end, "preprints": min(PREPRINTS, limit)}
    labels = {**WIKI_CATEGORIES, **WIKI_PAIRS} if source == "wikipedia" else PMC_TERMS
    limits: dict[str, int] = {}
    for task in tasks or labels:
        for label in labels[task]:
            limits[label] = max(limits.get(label, 0), min(most_of(task), limit))
    return {"categories" if source == "wikipedia" else "terms": limits}
