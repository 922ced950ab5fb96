from __future__ import annotations

import json

import mteb
import pytest

from medteb_mteb.folders import read_folder, task_from_folder
from medteb_mteb.measures.rankings import means, score_queries


@pytest.fixture(scope="module")
def model(encoder_folder):
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(encoder_folder), device="cpu")


def evaluate(model, folder, predictions):
    task = task_from_folder(folder)
    task.load_data()
    result = mteb.evaluate(
        model, task, cache=None, co2_tracker=False, prediction_folder=predictions, show_progress_bar=False
    )
    saved = json.loads((predictions / task.prediction_file_name).read_text())
    (scores,) = result.task_results[0].scores["test"]
    return scores, saved["default"]["test"]


def pairs(folder, name, rows):
    (folder / name).write_text("\n".join(["query-id\tcorpus-id", *("\t".join(row) for row in rows)]) + "\n")


def test_results_of_mteb_carry_the_measures_where_negatives_are_known(model, make_folder, tmp_path):
    folder = make_folder("Retrieval")
    scores, _ = evaluate(model, folder, tmp_path / "a")
    assert "judged_at_10" not in scores
    pairs(folder, "judged_negatives.tsv", [("q1", "d2"), ("q2", "d1"), ("q3", "d5")])
    scores, run = evaluate(model, folder, tmp_path / "b")
    data = read_folder(folder).retrieval
    mean = means(score_queries(data.qrels, data.judged, run).values())
    assert scores["ndcg_at_10"] == pytest.approx(mean.ndcg, abs=1e-5)
    assert scores["judged_at_10"] == pytest.approx(mean.judged, abs=1e-5)
    assert scores["bpref"] == pytest.approx(mean.bpref, abs=1e-5)
    assert scores["condensed_ndcg_at_10"] == pytest.approx(mean.condensed, abs=1e-5)
    assert 0 < scores["judged_at_10"] < 1


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["encoder", "bm25"])
def test_a_disputed_document_does_not_count_as_wrong(model, make_folder, tmp_path, name):
    model = mteb.get_model("bm25-char-bigram") if name == "bm25" else model
    folder = make_folder("Retrieval")
    before, run = evaluate(model, folder, tmp_path / "a")
    qrels = read_folder(folder).retrieval.qrels
    # Whatever is ranked first and is not relevant: judges do not agree on it.
    wrong = {q: next(d for d in scores if d not in qrels[q]) for q, scores in run.items() if len(scores) > 1}
    pairs(folder, "disputed.tsv", list(wrong.items()))
    after, cut = evaluate(model, folder, tmp_path / "b")
    assert cut == {q: {d: s for d, s in scores.items() if d != wrong.get(q)} for q, scores in run.items()}
    assert after["ndcg_at_10"] >= before["ndcg_at_10"]
    assert after["mrr_at_10"] > before["mrr_at_10"] or before["mrr_at_10"] == 1
