from __future__ import annotations

import math

import pytest

from mar_st.errors import MarError
from mar_st.recipes.schema import Evaluation
from mar_st.stages.fit import DevEvaluator
from tests.conftest import write_jsonl, write_judged


@pytest.fixture
def folder(tmp_path):
    corpus = ["头疼吃药", "发热感冒咳嗽", "高血压怎么办", "你好医生"]
    queries = ["头疼吃什么药", "高血压"]
    for name, texts in (("corpus", corpus), ("queries", queries)):
        rows = [{"_id": f"{name[0]}{index}", "text": text} for index, text in enumerate(texts)]
        write_jsonl(tmp_path / f"{name}.jsonl", rows)
    write_judged(tmp_path, [("q0", "c0", 1), ("q1", "c2", 1)])
    return tmp_path, corpus, queries


def test_equals_ndcg_computed_manually(mar, folder):
    path, corpus, queries = folder
    scores = mar.similarity(mar.encode_queries(queries), mar.encode_corpus(corpus)).numpy()
    expected = 0.0
    for row, relevant in zip(scores, (0, 2), strict=True):
        rank = int((row > row[relevant]).sum()) + 1
        expected += 1 / math.log2(rank + 1) / 2
    reported = DevEvaluator(Evaluation(path=str(path)))(mar)
    assert reported == {"dev_ndcg@10": pytest.approx(expected, abs=1e-6)}


def test_training_mode_is_kept(mar, folder):
    evaluator = DevEvaluator(Evaluation(path=str(folder[0]), metric="map"))
    mar.train()
    assert list(evaluator(mar)) == ["dev_map"]
    assert mar.training


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(MarError, match="nothing-here"):
        DevEvaluator(Evaluation(path=str(tmp_path / "nothing-here")))
