"""English MedTEB: 51 tasks over a snapshot of CSV files."""

from __future__ import annotations

import mteb
import numpy as np
import pytest
from tests.medteb_mteb.tasks.snapshots import rows_of, write_csv

from medteb_mteb.tasks import BENCHMARKS
from medteb_mteb.tasks.english import COLUMNS, english_tasks

CLS = "classification_wiki_pain_vs_fever_dataset"
CLU = "clustering_wiki_broad_medical_topics_dataset"
PAIR = "pairclassification_medqa_pair_classification"
RET = "retrieval_medquad_dataset"


def scored(name):
    model = mteb.get_model("bm25-english")
    return mteb.evaluate(model, mteb.get_task(name), cache=None, show_progress_bar=False).task_results[0]


@pytest.mark.parametrize("name", [CLS, CLU, PAIR, RET])
def test_a_task_of_every_type_is_scored(snapshot, name):
    snapshot(name)
    result = scored(name)
    assert 0 < result.get_score() <= 1
    assert result.dataset_revision == mteb.get_task(name).metadata.revision != "not-built"


def test_rows_are_taken_as_the_authors_take_them(snapshot):
    folder = snapshot(RET, CLS, CLU)
    rows = [("q 1", "d 1"), ("", "dropped"), ("q 1", 'with "quotes",\nand lines')]
    write_csv(folder / f"{RET}.csv", COLUMNS["RET"], rows)
    task = mteb.get_task(RET)
    task.load_data()
    split = task.dataset["default"]["test"]
    assert split["queries"]["text"] == ["q 1", "q 1"]  # equal texts stay apart
    assert split["corpus"]["text"][1] == 'with "quotes",\nand lines'
    assert split["relevant_docs"] == {"q_0": {"doc_0": 1}, "q_1": {"doc_1": 1}}
    task = mteb.get_task(CLS)
    task.load_data()
    assert (len(task.dataset["train"]), len(task.dataset["test"])) == (28, 12)
    task = mteb.get_task(CLU)
    task.load_data()
    assert len(task.dataset["test"][0]["sentences"]) == 40


def test_pairs_are_scored_by_the_best_f1(snapshot):
    folder = snapshot(PAIR)
    rows = [(text, text, "1.0") for text, _, _ in rows_of("PAIR")] + [("fever", "rash", "False")]
    write_csv(folder / f"{PAIR}.csv", COLUMNS["PAIR"], rows)
    assert scored(PAIR).get_score() == 1


@pytest.mark.parametrize(
    ("columns", "rows"),
    [
        (("text", "label"), [("a", "b")]),
        (("query", "corpus"), [("a", "b")]),
        (("query", "corpus"), [("a",), ("b",)]),
        (("query", "corpus"), [("", ""), ("", "x")]),
    ],
)
def test_unusable_files_are_refused(snapshot, columns, rows):
    folder = snapshot(RET)
    write_csv(folder / f"{RET}.csv", columns, rows)
    with pytest.raises(ValueError, match=RET):
        mteb.get_task(RET).load_data()


def test_the_51_tasks_give_the_averages_of_the_paper():
    """From the printed averages by type to the printed overall ones: 48 tasks by type and 3 more of CLS."""
    from medteb_mteb.tasks.tables import table

    kinds = [task.type for task in english_tasks().values()]
    counts = {kind: kinds.count(kind) for kind in kinds}
    assert counts == {"CLS": 15, "CLU": 12, "PAIR": 12, "RET": 12}
    averages = BENCHMARKS["MEDTEB_ENG_V1"].averages
    assert {kind: len(averages[kind][0]) for kind in counts} == counts
    assert len(averages["by type"]) == 4
    odd = {"nomic-embed-text-v1", "medicalai/ClinicalBERT"}  # their printed averages do not follow
    for model, row in table("english")["types"].items():
        overall = (48 * row["by_type"] + 3 * row["CLS"]) / 51
        assert (abs(overall - row["overall"]) < 0.001) == (model not in odd), model
        assert np.mean([row[kind] for kind in set(kinds)]) == pytest.approx(row["by_type"], abs=0.005), model
