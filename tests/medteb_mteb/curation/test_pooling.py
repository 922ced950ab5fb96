"""Pools of several retrievers: fused by rank, with the rank by each."""

from __future__ import annotations

import pytest

from mar_st.data.trec import write_run
from mar_st.errors import MarError
from mar_st.model.names import packaged_folder
from medteb_mteb.curation.pooling import POOL, merge
from medteb_mteb.curation.step import Estimate

DOCUMENTS = [
    {"_id": "d0", "title": "感冒", "text": "多喝水，注意休息。"},
    {"_id": "d1", "title": "高血压", "text": "低盐饮食，按时服药。"},
    {"_id": "d2", "title": "糖尿病", "text": "控制主食，监测血糖。"},
    {"_id": "d3", "text": "感冒和高血压可以同时存在。"},
]
QUERIES = [
    {"_id": "q0", "text": "感冒要多喝水吗"},
    {"_id": "q1", "text": "高血压饮食"},
    {"_id": "q2", "text": "无关"},
]


@pytest.fixture
def make(tmp_path, write, run_step):
    paths = {"queries": write(tmp_path / "queries.jsonl", QUERIES)}
    paths["documents"] = write(tmp_path / "documents.jsonl", DOCUMENTS)
    return lambda *retrievers, out="out", **options: run_step(
        POOL, out, **paths, retrievers=tuple(map(str, retrievers)), **options
    )


def test_fusion_is_the_sum_of_inverted_ranks():
    runs = {"a": ["x", "y", "z"], "b": ["z", "w"]}
    fused = merge(runs, size=9, depth=9)
    scores = {"x": 1 / 61, "y": 1 / 62, "z": 1 / 63 + 1 / 61, "w": 1 / 62}
    assert list(fused) == sorted(scores, key=lambda name: (-scores[name], "xyzw".index(name)))
    assert fused["z"] == {"a": 3, "b": 1}
    assert list(merge(runs, size=2, depth=9)) == ["z", "x"]
    assert merge(runs, size=9, depth=2)["z"] == {"b": 1}  # beyond its depth it has found nothing
    assert merge({"a": []}, size=9, depth=9) == {}


def test_bm25_and_a_run_are_retrievers(make, tmp_path, rows_of):
    make("bm25", out="searched")
    first, second, third = rows_of(tmp_path / "searched/pools.jsonl")
    assert set(first["corpus-ids"]) == {"d0", "d3"}
    assert second["corpus-ids"][0] == "d1"
    assert third["corpus-ids"] == []
    listed = {row["query-id"]: row["corpus-ids"] for row in (first, second, third)}
    run = {query: {name: 1.0 / n for n, name in enumerate(names, 1)} for query, names in listed.items()}
    write_run(tmp_path / "lucene.trec", run | {"q2": {"d2": 1.0}})
    counts = make("bm25", tmp_path / "lucene.trec")
    pools = rows_of(tmp_path / "out/pools.jsonl")
    assert {row["query-id"]: row["corpus-ids"] for row in pools} == listed | {"q2": ["d2"]}
    assert pools[2]["ranks"] == {"bm25": [None], "lucene": [1]}
    assert counts["rows"] == sum(map(len, listed.values())) + 1
    assert counts["details"]["found by one alone"] == {"bm25": 0, "lucene": 1}


def test_the_packaged_model_is_a_retriever_by_its_name(make, tmp_path, rows_of):
    if not (packaged_folder() / "modules.json").is_file():
        pytest.skip("this installation comes without the packaged model")
    make("mar-mini", depth=3)
    row = rows_of(tmp_path / "out/pools.jsonl")[0]
    assert len(row["corpus-ids"]) == 3
    assert list(row["ranks"]) == ["mar-mini"]


def test_retrievers_that_cannot_be_used_are_refused(make, tmp_path):
    with pytest.raises(MarError, match="one name"):
        make("bm25", "bm25")
    with pytest.raises(MarError, match="gone"):
        make("./gone")
    (tmp_path / "one.trec").write_text("q0 Q0 d1 1 0.9 x\nq0 Q0 other 2 0.8 x\n")
    with pytest.raises(MarError, match="other"):
        make(tmp_path / "one.trec")


def test_an_estimate_assumes_full_pools(tmp_path):
    settings = POOL.settings(
        out=tmp_path, queries="q", documents="d", retrievers=("bm25", "bm25:jieba"), depth=10
    )
    estimate = POOL.estimate(settings, {"queries": Estimate(7), "documents": Estimate(100)})
    assert (estimate.rows, estimate.queries) == (7 * 20, 7)
