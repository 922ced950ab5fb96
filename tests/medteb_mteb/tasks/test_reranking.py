"""MedTEBReranking: MAP over the whole candidate list, and lists that it cannot cover."""

from __future__ import annotations

import json

import mteb
import numpy as np
import pytest
from tests.medteb_mteb.tasks.recorder import Recorder, evaluate

from medteb_mteb.editions import EditionError, write_manifest
from medteb_mteb.folders import FolderError


def test_reranking_is_map_over_the_whole_list(tmp_path, monkeypatch):
    import pytrec_eval

    # 100 candidates, as published; the positives of the run are spread over the list
    root, rng = tmp_path / "data", np.random.default_rng(0)
    folder = root / "MedTEBReranking"
    (folder / "qrels").mkdir(parents=True)
    corpus = [{"_id": f"d{i}", "title": "", "text": f"文档{i}"} for i in range(150)]
    lists = {f"q{i}": [f"d{j}" for j in rng.permutation(150)[:100]] for i in range(5)}
    positives = {query: [*rng.permutation(documents)[:7]] for query, documents in lists.items()}
    for name, rows in {
        "corpus": corpus,
        "queries": [{"_id": query, "text": f"问题{query}"} for query in lists],
        "top_ranked": [{"query-id": query, "corpus-ids": documents} for query, documents in lists.items()],
    }.items():
        lines = [json.dumps(row, ensure_ascii=False) for row in rows]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    judged = [f"{query}\t{document}\t1" for query, documents in positives.items() for document in documents]
    (folder / "qrels/test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *judged]) + "\n")
    write_manifest(folder, task="MedTEBReranking", name="mini", version="1", licence="mit", counts={})
    monkeypatch.setenv("MEDTEB_DATA", str(root))

    result = evaluate(mteb.get_task("MedTEBReranking"), Recorder(), prediction_folder=tmp_path / "runs")
    runs = json.loads((tmp_path / "runs/MedTEBReranking_predictions.json").read_text())["default"]["test"]
    assert {len(run) for run in runs.values()} == {100}
    qrels = {query: dict.fromkeys(map(str, documents), 1) for query, documents in positives.items()}
    by_query = pytrec_eval.RelevanceEvaluator(qrels, {"map"}).evaluate(runs)
    whole = np.mean([scores["map"] for scores in by_query.values()])
    assert result.get_score() == pytest.approx(whole, abs=1e-5)
    assert result.scores["test"][0]["map_at_10"] < whole - 0.001


def test_candidate_lists_that_the_score_does_not_cover_are_refused(data_root, monkeypatch):
    monkeypatch.setattr("medteb_mteb.tasks.reranking.MAX_CANDIDATES", 5)
    with pytest.raises(EditionError, match=r"at most 5 documents .*found a list of 6"):
        mteb.get_task("MedTEBReranking").load_data()


def test_an_edition_without_candidates_is_refused(data_root):
    folder = data_root / "MedTEBReranking"
    (folder / "top_ranked.jsonl").unlink()
    write_manifest(folder, task="MedTEBReranking", name="mini", version="2", licence="mit", counts={})
    task = mteb.get_task("MedTEBReranking")
    with pytest.raises(FolderError, match="is of type Retrieval, but MedTEBReranking is of type Reranking"):
        task.load_data()
    assert not task.data_loaded
