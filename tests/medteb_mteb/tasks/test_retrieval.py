"""MedTEBRetrieval: nDCG@10, and the measures that need judged negatives."""

from __future__ import annotations

import json

import mteb
import pytest
from tests.medteb_mteb.tasks.recorder import Recorder, evaluate

from medteb_mteb.editions import write_manifest

QRELS = "query-id\tcorpus-id\tscore\nq0\td0\t1\nq0\td3\t2\nq1\td1\t1\nq2\td2\t1\n"


def rewrite(folder, **files):
    for name, content in files.items():
        (folder / name.replace("__", "/")).with_suffix(".tsv").write_text(content)
    write_manifest(folder, task="MedTEBRetrieval", name="mini", version="2", licence="mit", counts={})


def test_the_score_is_ndcg_of_graded_labels(data_root, tmp_path):
    import pytrec_eval

    rewrite(data_root / "MedTEBRetrieval", qrels__test=QRELS)
    result = evaluate(mteb.get_task("MedTEBRetrieval"), Recorder(), prediction_folder=tmp_path / "runs")
    saved = json.loads((tmp_path / "runs/MedTEBRetrieval_predictions.json").read_text())["default"]["test"]
    qrels = {"q0": {"d0": 1, "d3": 2}, "q1": {"d1": 1}, "q2": {"d2": 1}}
    by_query = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut.10"}).evaluate(saved)
    expected = sum(scores["ndcg_cut_10"] for scores in by_query.values()) / 3
    assert result.get_score() == pytest.approx(expected, abs=1e-5)


def test_judged_negatives_of_the_edition_add_measures(data_root):
    folder = data_root / "MedTEBRetrieval"
    plain = evaluate(mteb.get_task("MedTEBRetrieval"), Recorder()).scores["test"][0]
    rewrite(folder, judged_negatives="query-id\tcorpus-id\nq0\td1\nq1\td2\nq2\td0\n")
    judged = evaluate(mteb.get_task("MedTEBRetrieval"), Recorder()).scores["test"][0]
    added = {"judged_at_10", "bpref", "condensed_ndcg_at_10"}
    assert set(judged) - set(plain) == added
    assert judged["main_score"] == plain["main_score"]
    assert judged["judged_at_10"] == pytest.approx(2 / 6, abs=1e-5)  # of 6 documents for each query
