from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mar_st.data.trec import RunError, write_run
from mar_st.mining.retrievers import BM25, Retrieved
from mar_st.model.names import packaged_folder
from medteb_mteb.curation.files.folder import read_json
from medteb_mteb.curation.files.records import BuildError, Text
from medteb_mteb.curation.pooling.pool import Candidate, Pooling, merge, open_retriever, pool

DOCUMENTS = [
    Text("d0", "多喝水，注意休息。", "感冒"),
    Text("d1", "低盐饮食，按时服药。", "高血压"),
    Text("d2", "控制主食，监测血糖。", "糖尿病"),
    Text("d3", "感冒和高血压可以同时存在。"),
]
QUERIES = [Text("q0", "感冒要多喝水吗"), Text("q1", "高血压饮食"), Text("q2", "完全无关")]


class Fixed:
    """Finds documents by a table, and counts the calls."""

    def __init__(self, name, table, stop=None):
        self.name, self.table, self.stop = name, table, stop
        self.prepared, self.asked = 0, []

    def identity(self):
        return {"kind": "fixed", "table": self.table}

    def prepare(self, queries, corpus):
        self.prepared += 1

    def score(self, rows, documents):
        raise AssertionError

    def search(self, rows, k, also):
        if self.stop is not None and len(self.asked) >= self.stop:
            raise KeyboardInterrupt
        self.asked += rows
        documents = np.full((len(rows), k), -1)
        for place, row in enumerate(rows):
            listed = self.table[row][:k]
            documents[place, : len(listed)] = listed
        return Retrieved(documents, np.zeros(documents.shape), [np.empty(0)] * len(rows))


FIRST, SECOND = [[0, 1, 2], [3], []], [[2, 3], [3, 1], [0]]


def rows_of(path):
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def test_fusion_is_the_sum_of_inverted_ranks():
    runs = {"a": ["x", "y", "z"], "b": ["z", "w"]}
    fused = merge(runs, Pooling())
    scores = {"x": 1 / 61, "y": 1 / 62, "z": 1 / 63 + 1 / 61, "w": 1 / 62}
    assert [c.document for c in fused] == sorted(scores, key=lambda name: (-scores[name], "xyzw".index(name)))
    assert fused[0] == Candidate("z", {"a": 3, "b": 1})
    assert [c.document for c in merge(runs, Pooling(merge="union"))] == ["x", "z", "y", "w"]
    assert [c.document for c in merge(runs, Pooling(size=2, merge="union"))] == ["x", "z"]
    # Beyond its depth a retriever has found nothing.
    assert merge(runs, Pooling(depth=2))[-1].ranks == {"b": 2}
    assert merge({"a": []}, Pooling()) == []


def test_pools_name_the_retrievers_of_each_document(tmp_path):
    path = pool(
        QUERIES, DOCUMENTS, [Fixed("a", FIRST), Fixed("b", SECOND)], tmp_path / "out", show_progress=False
    )
    first, second, third = rows_of(path)
    assert first == {
        "query-id": "q0",
        "corpus-ids": ["d2", "d0", "d1", "d3"],
        "ranks": {"a": [3, 1, 2, None], "b": [1, None, None, 2]},
    }
    assert second["corpus-ids"] == ["d3", "d1"]
    assert third["ranks"] == {"a": [None], "b": [1]}
    manifest = read_json(tmp_path / "out" / "manifest.json")
    assert (manifest["pairs"], manifest["found by one alone"]) == (7, {"a": 2, "b": 3})


@pytest.mark.parametrize("stop", [1, 2])
def test_resumed_equals_uninterrupted(tmp_path, stop):
    def systems(stop=None):
        return [Fixed("a", FIRST), Fixed("b", SECOND, stop)]

    options = {"shard": 1, "show_progress": False}
    whole = pool(QUERIES, DOCUMENTS, systems(), tmp_path / "whole", **options)
    with pytest.raises(KeyboardInterrupt):
        pool(QUERIES, DOCUMENTS, systems(stop), tmp_path / "out", **options)
    again = systems()
    path = pool(QUERIES, DOCUMENTS, again, tmp_path / "out", **options)
    assert path.read_bytes() == whole.read_bytes()
    assert (again[0].prepared, again[1].asked) == (0, list(range(stop, 3)))
    finished = systems()
    pool(QUERIES, DOCUMENTS, finished, tmp_path / "out", **options)
    assert [system.prepared for system in finished] == [0, 0]


def test_bm25_finds_documents_that_share_words(tmp_path):
    path = pool(QUERIES, DOCUMENTS, [BM25()], tmp_path / "out", show_progress=False)
    first, second, third = rows_of(path)
    assert set(first["corpus-ids"]) == {"d0", "d3"}
    assert second["corpus-ids"][0] == "d1"
    assert third["corpus-ids"] == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"queries": QUERIES[:2]}, "holds a step pool with other input"),
        ({"how": Pooling(size=3)}, "other settings"),
        ({"retrievers": [Fixed("a", SECOND)]}, "other retrievers"),
        ({"retrievers": []}, "need queries, documents and a retriever"),
        (
            {"retrievers": [Fixed("a", FIRST), Fixed("a", SECOND)]},
            "Two of the retrievers have one name: a, a",
        ),
    ],
)
def test_invalid_settings_are_refused(tmp_path, change, message):
    given = {"queries": QUERIES, "documents": DOCUMENTS, "retrievers": [Fixed("a", FIRST)], "how": Pooling()}
    pool(**given, out=tmp_path / "out", show_progress=False)
    with pytest.raises(BuildError, match=message):
        pool(**{**given, **change}, out=tmp_path / "out", show_progress=False)


def test_impossible_settings_are_refused():
    with pytest.raises(BuildError, match="at least 1; got 0 and 500"):
        Pooling(size=0)
    with pytest.raises(BuildError, match="rrf or union; got 'mean'"):
        Pooling(merge="mean")


def test_the_command_pools_documents_of_two_retrievers(medteb, tmp_path, monkeypatch):
    import mar_st

    for name, texts in (("queries", QUERIES), ("documents", DOCUMENTS)):
        lines = [json.dumps(text.to_json(), ensure_ascii=False) for text in texts]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    model = Path(str(mar_st.__file__)).parent / "models" / "mar-mini"
    args = ["pool", "queries.jsonl", "documents.jsonl", "out", "-r", "bm25", "-r", str(model), "--depth", "3"]
    monkeypatch.chdir(tmp_path)
    code, out, _ = medteb(*args, "-q")
    assert code == 0
    assert "pairs of 3 queries in out/pools.jsonl" in out
    (first, *_) = rows_of("out/pools.jsonl")
    assert set(first["ranks"]) == {"bm25", str(model)}
    assert sum(rank is not None for rank in first["ranks"][str(model)]) == 3
    assert sum(rank is not None for rank in first["ranks"]["bm25"]) == 2
    code, _, err = medteb(*args[:4], "-r", "./gone")
    assert code == 2
    assert "There is no folder ./gone" in err


def test_the_packaged_model_is_a_retriever_by_its_name(tmp_path):
    if not (packaged_folder() / "modules.json").is_file():
        pytest.skip("this installation comes without the packaged model")
    queries = [Text("q", "感冒了怎么办")]
    documents = [Text("a", "感冒要多休息，多喝水。"), Text("b", "骨折后要固定。")]
    retriever = open_retriever("mar-mini", store=tmp_path / "store", show_progress=False)
    path = pool(queries, documents, [retriever], tmp_path / "out", show_progress=False)
    row = json.loads(path.read_text(encoding="utf-8"))
    assert set(row["corpus-ids"]) == {"a", "b"}
    assert list(row["ranks"]) == ["mar-mini"]


def test_a_run_file_can_be_a_retriever(tmp_path, medteb):
    """A search and the run file of the same search give the same pools."""
    searched = pool(QUERIES, DOCUMENTS, [BM25()], tmp_path / "searched")
    listed = {row["query-id"]: row["corpus-ids"] for row in rows_of(searched)}
    run = {
        query: {name: 1.0 / place for place, name in enumerate(names, 1)} for query, names in listed.items()
    }
    for file in ("lucene.trec", "splade.json"):
        write_run(tmp_path / file, run)
    for name, texts in (("queries", QUERIES), ("documents", DOCUMENTS)):
        rows = [json.dumps({"_id": text.id, "text": text.text, "title": text.title}) for text in texts]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows))
    code, _, _ = medteb(
        "pool", tmp_path / "queries.jsonl", tmp_path / "documents.jsonl", tmp_path / "pools", "--quiet",
        "-r", tmp_path / "lucene.trec", "-r", f"other={tmp_path / 'splade.json'}",
    )  # fmt: skip
    assert code == 0
    pools = rows_of(tmp_path / "pools" / "pools.jsonl")
    assert {row["query-id"]: row["corpus-ids"] for row in pools} == listed
    assert list(pools[0]["ranks"]) == ["lucene", "other"]
    assert pools[0]["ranks"]["lucene"] == list(range(1, len(pools[0]["corpus-ids"]) + 1))


def test_runs_of_other_texts_are_refused(tmp_path, medteb):
    ids = ([text.id for text in QUERIES], [text.id for text in DOCUMENTS])
    (tmp_path / "one.trec").write_text("q0 Q0 d1 1 0.9 x\nq0 Q0 other 2 0.8 x\n")
    with pytest.raises(RunError, match=r"one\.trec:2: there is no document 'other'"):
        open_retriever(str(tmp_path / "one.trec"), ids=ids)
    with pytest.raises(BuildError, match="is a run"):
        open_retriever(str(tmp_path / "one.trec"))


def test_a_changed_run_needs_another_folder(tmp_path):
    ids = ([text.id for text in QUERIES], [text.id for text in DOCUMENTS])
    path = tmp_path / "one.trec"
    path.write_text("q0 Q0 d1 1 0.9 x\n")
    pools = pool(
        QUERIES, DOCUMENTS, [open_retriever(str(path), ids=ids)], tmp_path / "pools", Pooling(depth=1)
    )
    assert [row["corpus-ids"] for row in rows_of(pools)] == [["d1"], [], []]
    path.write_text("q0 Q0 d2 1 0.9 x\n")
    with pytest.raises(BuildError):
        pool(QUERIES, DOCUMENTS, [open_retriever(str(path), ids=ids)], tmp_path / "pools", Pooling(depth=1))
