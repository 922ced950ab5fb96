from __future__ import annotations

import json
import math

import pytest

from mar_st.errors import MarError
from mar_st.recipes.schema import Evaluation
from mar_st.stages.fit import DevEvaluator


@pytest.fixture
def folder(tmp_path):
    corpus = ["头疼吃药", "发热感冒咳嗽", "高血压怎么办", "你好医生"]
    (tmp_path / "qrels").mkdir()
    rows = [{"_id": f"d{index}", "title": "", "text": text} for index, text in enumerate(corpus)]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    queries = [{"_id": "q0", "text": "头疼吃什么药"}, {"_id": "q1", "text": "高血压"}]
    (tmp_path / "queries.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in queries), encoding="utf-8"
    )
    (tmp_path / "qrels" / "test.tsv").write_text(
        "query-id\tcorpus-id\tscore\nq0\td0\t1\nq1\td2\t1\n", encoding="utf-8"
    )
    return tmp_path, corpus, [row["text"] for row in queries]


def test_equals_ndcg_computed_manually(mar, folder):
    path, corpus, queries = folder
    scores = mar.similarity(mar.encode_queries(queries), mar.encode_corpus(corpus)).numpy()
    expected = 0.0
    for row, relevant in zip(scores, (0, 2), strict=True):
        rank = int((row > row[relevant]).sum()) + 1
        expected += 1 / math.log2(rank + 1) / 2
    reported = DevEvaluator(Evaluation(path=str(path)))(mar)
    assert reported == {"dev_ndcg@10": pytest.approx(expected, abs=1e-6)}
    assert 0 < expected < 1 or expected == 1


def test_training_mode_is_kept(mar, folder):
    evaluator = DevEvaluator(Evaluation(path=str(folder[0]), metric="map"))
    mar.train()
    assert list(evaluator(mar)) == ["dev_map"]
    assert mar.training


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(MarError, match="nothing-here"):
        DevEvaluator(Evaluation(path=str(tmp_path / "nothing-here")))
