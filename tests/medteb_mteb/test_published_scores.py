"""Scores that papers print for public models and data: their averages, and with the Hub the scores."""

from __future__ import annotations

import csv
from pathlib import Path

import mteb
import pytest

from medteb_mteb.report.table import ResultTable, ScoreEntry
from medteb_mteb.tasks import BENCHMARKS

HERE = Path(__file__).parent
#: Other versions of models, libraries and hardware.
TOLERANCE = 0.01
#: Open models of Table 9 of MAR's paper with fewer than 400 million parameters, by their Hub names.
SMALL = {
    "gte-multilingual-base": "Alibaba-NLP/gte-multilingual-base",
    "gte-base-zh": "thenlper/gte-base-zh",
    "gte-large-zh": "thenlper/gte-large-zh",
    "bge-small-zh-v1.5": "BAAI/bge-small-zh-v1.5",
    "bge-base-zh-v1.5": "BAAI/bge-base-zh-v1.5",
    "bge-large-zh-v1.5": "BAAI/bge-large-zh-v1.5",
    "Conan-embedding-v1": "TencentBAC/Conan-embedding-v1",
    "stella-base-zh-v3-1792d": "infgrad/stella-base-zh-v3-1792d",
}


def rows(file: str) -> list[dict[str, str]]:
    with (HERE / file).open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


BMRETRIEVER, MAR_TABLE_9 = rows("bmretriever_scores.csv"), rows("mar_table_9.csv")
FIVE = BENCHMARKS["BMRETRIEVER_ENG"].task_names[:5]


@pytest.mark.parametrize("row", BMRETRIEVER, ids=lambda row: row["model"])
def test_the_averages_of_bmretriever_are_those_of_its_paper(row):
    entries = [
        ScoreEntry("a", "r", task, "ndcg_at_10", float(row[task]), "d", sample=None, note="") for task in FIVE
    ]
    table = ResultTable(["a"], list(FIVE), entries, BENCHMARKS["BMRETRIEVER_ENG"].averages)
    for average in ("average of 4", "average of 5"):
        assert table.average("a", average) == pytest.approx(float(row[average]), abs=0.0006)


@pytest.mark.network
@pytest.mark.timeout(0)
@pytest.mark.parametrize("task", ["CMedQAv1", "CMedQAv2"])
@pytest.mark.parametrize("model", SMALL)
def test_public_models_have_the_scores_of_mars_paper_on_cmedqa(model, task, online):
    (row,) = (row for row in MAR_TABLE_9 if row["model"] == model)
    result = mteb.evaluate(mteb.get_model(SMALL[model]), mteb.get_task(f"{task}-reranking"), cache=None)
    assert 100 * result.task_results[0].get_score() == pytest.approx(float(row[task]), abs=100 * TOLERANCE)
