"""What is fetched for the tasks of each source."""

from __future__ import annotations

import pytest

from medteb_mteb.curation.relatives.fetch.tables import (
    MAX_PER_LABEL,
    PMC_TERMS,
    TRIAL_FIELDS,
    WIKI_CATEGORIES,
    WIKI_PAIRS,
    extent_of,
    most_of,
)

DISEASES = "pairclassification_wiki_diseases_dataset"
FEVER = "classification_wiki_pain_vs_fever_dataset"


def test_extents_are_those_of_the_paper():
    trials = tuple(TRIAL_FIELDS)
    assert extent_of("clinical-trials", trials, None) == {"studies": 17_000, "page": 1_000}
    assert extent_of("clinical-trials", trials, 5) == {"studies": 5, "page": 1_000}
    pages = extent_of("wikipedia", tuple(WIKI_CATEGORIES), None)["categories"]
    assert len(pages) == 4 + 2 + 5 + 5 + 5 + 3 + 5 + 5  # Pathology is in two tasks
    assert (pages["Radiology"], pages["Public health"], pages["Fever"]) == (2_000, 1_000, 2_000)
    assert extent_of("wikipedia", (DISEASES,), None) == {
        "categories": {"Diseases and disorders by system": 2_000},
        "depths": {"Diseases and disorders by system": 2},
    }
    assert extent_of("medrxiv", ("retrieval_medrxiv_dataset",), None)["preprints"] == 16_384
    assert extent_of("wikipedia", (FEVER,), 7) == {"categories": {"Pain": 7, "Fever": 7}}


def test_pubmed_gives_no_more_ids_than_a_search_may_return():
    assert extent_of("pubmed", (), None) == {"terms": {"medicine": 9_999}}
    assert extent_of("pubmed", (), 20) == {"terms": {"medicine": 20}}


def test_a_label_of_two_tasks_has_the_larger_maximum():
    both = (
        "clustering_pmc_medical_imaging_types_dataset",
        "classification_pmc_medical_imaging_types_dataset",
    )
    small, large = (extent_of("pmc", (task,), None)["terms"] for task in both)
    assert set(small.values()) == {1_000}
    assert set(large.values()) == {2_000}
    assert extent_of("pmc", both, None) == extent_of("pmc", both[::-1], None) == {"terms": large}


@pytest.mark.parametrize("task", [*WIKI_CATEGORIES, *WIKI_PAIRS, *PMC_TERMS])
def test_every_task_of_labels_has_a_maximum_and_distinct_labels(task):
    assert most_of(task) in MAX_PER_LABEL.values()
    labels = {**WIKI_CATEGORIES, **WIKI_PAIRS, **PMC_TERMS}[task]
    assert len(set(labels)) == len(labels)
