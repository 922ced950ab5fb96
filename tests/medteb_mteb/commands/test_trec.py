from __future__ import annotations

import json

import mteb
import pytest
import pytrec_eval

from mar_st.data.trec import read_run
from medteb_mteb.folders import FolderError, read_folder, task_from_folder


def test_predictions_of_a_run_become_a_trec_run(medteb, data_root, tmp_path):
    """Its nDCG@10 by trec_eval is mteb's score."""
    out = tmp_path / "results"
    code, _, _ = medteb(
        "run", "-t", "MedTEBRetrieval", "-m", "bm25-char-bigram", "--save-predictions", "-q",
        "--output-folder", out,
    )  # fmt: skip
    assert code == 0
    (predictions,) = (out / "predictions").rglob("*.json")
    code, printed, _ = medteb("trec", "run", predictions, tmp_path / "one.trec", "--tag", "bm25")
    assert code == 0
    assert printed.startswith("3 queries, ")
    code, _, _ = medteb("trec", "qrels", "MedTEBRetrieval", tmp_path / "one.qrels")
    assert code == 0
    with (tmp_path / "one.qrels").open() as qrels, (tmp_path / "one.trec").open() as run:
        evaluator = pytrec_eval.RelevanceEvaluator(pytrec_eval.parse_qrel(qrels), {"ndcg_cut.10"})
        scores = evaluator.evaluate(pytrec_eval.parse_run(run))
    (result,) = (out / "results").rglob("MedTEBRetrieval.json")
    expected = json.loads(result.read_text())["scores"]["test"][0]["ndcg_at_10"]
    assert sum(score["ndcg_cut_10"] for score in scores.values()) / 3 == pytest.approx(expected, abs=1e-5)
    code, _, _ = medteb("trec", "run", tmp_path / "one.trec", tmp_path / "back.json")
    assert code == 0
    assert read_run(tmp_path / "back.json") == read_run(tmp_path / "one.trec")


def test_a_wrong_run_is_one_line(medteb, tmp_path):
    (tmp_path / "one.trec").write_text("q Q0 d 1 nan x\n")
    code, out, err = medteb("trec", "run", tmp_path / "one.trec", tmp_path / "two.json")
    assert (code, out) == (2, "")
    assert err.startswith("medteb: error: ")
    assert "one.trec:1: the score must be a finite number" in err
    assert err.count("\n") == 1


def test_folders_with_trec_qrels_are_those_with_tsv(retrieval_folder, tmp_path):
    retrieval_folder(tmp_path / "tsv")
    retrieval_folder(tmp_path / "trec")
    table = tmp_path / "trec/qrels/test.tsv"
    lines = [line.split() for line in table.read_text().splitlines()[1:]]
    (table.parent / "test.qrels").write_text("".join(f"{q} 0 {d}  {s}\n" for q, d, s in lines))
    assert (
        read_folder(tmp_path / "trec").retrieval == read_folder(tmp_path / "tsv").retrieval
    )  # both forms agree
    table.unlink()
    assert read_folder(tmp_path / "trec").retrieval == read_folder(tmp_path / "tsv").retrieval
    model = mteb.get_model("bm25-char-bigram")
    scores = [
        mteb.evaluate(model, task_from_folder(tmp_path / name), cache=None, show_progress_bar=False)
        for name in ("tsv", "trec")
    ]
    assert scores[0].task_results[0].get_score() == scores[1].task_results[0].get_score()


def test_every_wrong_line_of_trec_qrels_is_named(retrieval_folder, tmp_path):
    retrieval_folder(tmp_path / "data")
    (tmp_path / "data/qrels/test.tsv").unlink()
    lines = ["q0 0 d0 1", "q1 0 d1", "q1 0 d1 1", "q1 0 d1 0", "q2 0 nowhere 1", "q2 0 d2 nan", "q2 0 d2 1"]
    (tmp_path / "data/qrels/test.trec").write_text("\n".join(lines))
    with pytest.raises(FolderError) as caught:
        read_folder(tmp_path / "data")
    message = str(caught.value)
    assert "qrels/test.trec:2: 3 columns, TREC qrels have 4" in message
    assert "qrels/test.trec:4: ('q1', 'd1') is judged twice (first at line 3)" in message
    assert "qrels/test.trec:5: corpus-id 'nowhere' is not in the corpus" in message
    assert "qrels/test.trec:6: score must be a whole number, got 'nan'" in message
