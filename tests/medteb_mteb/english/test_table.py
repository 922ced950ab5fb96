from __future__ import annotations

from collections import Counter

import pytest

from medteb_mteb.english.table import TYPES, averages, english_tasks, published_results

#: Models whose printed averages do not follow from their printed means.
ODD_OVERALL = {"nomic-embed-text-v1", "medicalai/ClinicalBERT"}
ODD_SOURCES = {"nomic-embed-text-v1", "all-MiniLM-L6-v2", "medicalai/ClinicalBERT"}


def test_there_are_51_tasks_of_four_types_and_ten_sources():
    tasks = list(english_tasks().values())
    assert [task.number for task in tasks] == list(range(1, 52))
    assert Counter(task.type for task in tasks) == {"CLS": 15, "CLU": 12, "PAIR": 12, "RET": 12}
    assert Counter(task.source for task in tasks) == {
        "MIMIC-IV": 26,
        "Wikipedia": 11,
        "ClinicalTrials.gov": 4,
        "PMC": 3,
        "PubMed": 2,
        **dict.fromkeys(("MedMCQA", "MedQA", "MedQuAD", "bioRxiv", "medRxiv"), 1),
    }
    # Without MIMIC-IV 26 tasks are impossible, and six more need an LLM.
    assert Counter(task.needs for task in tasks) == {"credentials": 26, "network": 19, "an LLM": 6}
    prefixes = {
        "CLS": "classification_",
        "CLU": "clustering_",
        "PAIR": "pairclassification_",
        "RET": "retrieval_",
    }
    assert all(task.name.startswith(prefixes[task.type]) for task in tasks)


@pytest.mark.parametrize("model", sorted(published_results()))
def test_averages_follow_the_papers_arithmetic(model):
    """From the printed means of types (two decimals) to its printed averages."""
    printed = published_results()[model]
    computed = averages({task.name: printed.types[task.type] for task in english_tasks().values()})
    assert computed.by_type == pytest.approx(printed.by_type, abs=0.005)  # means are rounded to 0.01
    assert computed.overall == pytest.approx(printed.overall, abs=0.0055)
    # From its average by type, which has three decimals: 15, 12, 12, 12 tasks, 48 by type and 3 more.
    overall = (48 * printed.by_type + 3 * printed.types["CLS"]) / 51
    assert (abs(overall - printed.overall) < 0.001) == (model not in ODD_OVERALL)


def test_the_papers_means_by_source_say_which_51_tasks_it_has():
    close = {
        model
        for model, printed in published_results().items()
        if abs(
            averages({task.name: printed.sources[task.source] for task in english_tasks().values()}).overall
            - printed.overall
        )
        < 0.004
    }
    assert set(published_results()) - close == ODD_SOURCES


def test_averages_need_every_task():
    names = list(english_tasks())
    with pytest.raises(ValueError, match=r"1 of 51 tasks have no score \(such as classification_wiki_syn"):
        averages(dict.fromkeys(names[1:], 0.5))
    with pytest.raises(ValueError, match=r"it is not one of the 51 tasks \(such as MedTEBSTS\)"):
        averages(dict.fromkeys([*names, "MedTEBSTS"], 0.5))
    assert averages(dict.fromkeys(names, 0.5)).types == dict.fromkeys(TYPES, 0.5)
