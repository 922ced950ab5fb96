"""Alignment sets: each text once, no query of a test."""

from __future__ import annotations

import pytest
from tests.conftest import QUERIES

from mar_st.data.training import read_source
from mar_st.errors import MarError
from mar_st.recipes.schema import AlignStage, Data
from mar_st.stages.align import text_groups
from medteb_mteb.curation.training.pairs import PAIRS
from medteb_mteb.curation.training.rows import HeldOut, read_held_out, training_queries, training_texts


@pytest.fixture
def sources(tmp_path, write):
    faq = [{"_id": f"f{i}", "text": f"问题{i}"} for i in range(6)] + [{"_id": "again", "text": "问题0"}]
    forum = [{"_id": f"g{i}", "text": f"帖子{i}"} for i in range(3)] + [{"_id": "same", "text": "问题5"}]
    articles = [
        {"_id": "a0", "title": "感冒", "text": "多休息"},
        {"_id": "a1", "title": "流感", "text": "多休息"},
        {"_id": "a2", "title": "", "text": "感冒\n多休息"},
        {"_id": "a3", "text": "问题0"},
    ]
    for name, rows in (("faq", faq), ("forum", forum), ("articles", articles)):
        write(tmp_path / f"{name}.jsonl", rows)
    return lambda *names: tuple(tmp_path / f"{name}.jsonl" for name in names)


def test_texts_are_written_once(sources, run_step, tmp_path, rows_of):
    counts = run_step(PAIRS, queries=sources("faq", "forum"), documents=sources("articles"))
    queries = rows_of(tmp_path / "out/queries.jsonl")
    assert [row["_id"] for row in queries] == [*(f"f{i}" for i in range(6)), "g0", "g1", "g2"]
    assert [row["source"] for row in queries] == [0] * 6 + [1] * 3
    # Equal with its title is equal; a query's text may also be a document's.
    documents = rows_of(tmp_path / "out/corpus.jsonl")
    assert [row["_id"] for row in documents] == ["a0", "a1", "a3"]
    assert documents[0]["title"] == "感冒"
    dropped = rows_of(tmp_path / "out/dropped.jsonl")
    assert [(row["_id"], row["role"], row["source"], row["reason"]) for row in dropped] == [
        ("again", "query", 0, "duplicate"),
        ("same", "query", 1, "duplicate"),
        ("a2", "document", 0, "duplicate"),
    ]
    assert counts["details"]["kept"] == {"query": 9, "document": 3}


def test_the_align_stage_reads_them(sources, run_step, tmp_path):
    run_step(PAIRS, queries=sources("faq"), documents=sources("articles"))
    entries = [
        Data(name=f"aligned-{role}", path=str(tmp_path / "out"), form="texts", role=role)
        for role in ("query", "document")
    ]
    stage = AlignStage(stage="align", name="align", batch_size=4, learning_rate=1e-3, temperature=0.1)
    groups = text_groups([read_source(entry, 42) for entry in entries], stage)
    assert {group.role: list(group.texts) for group in groups} == {
        "query": [f"问题{i}" for i in range(6)],
        "document": ["感冒\n多休息", "流感\n多休息", "问题0"],
    }


def test_training_queries_are_those_of_all_sources_and_of_sts_pairs(run_step, tmp_path, write):
    files = [write(tmp_path / f"{name}.jsonl", [{"_id": "1", "text": name}]) for name in ("甲", "乙")]
    run_step(PAIRS, queries=tuple(files), documents=())
    write(tmp_path / "out" / "sts-pairs.jsonl", [{"query": "丙", "positive": "丁"}])
    assert sorted(training_queries(tmp_path / "out")) == sorted("甲乙丙")


def test_queries_of_a_test_are_left_out(sources, run_step, tmp_path, write, rows_of):
    test = write(tmp_path / "test.jsonl", [{"_id": "t", "text": "问题3？"}])
    run_step(PAIRS, queries=sources("faq"), documents=sources("faq"), against=(test,))
    out = tmp_path / "out"
    assert "问题3" not in {row["text"] for row in rows_of(out / "queries.jsonl")}
    assert "问题3" in {row["text"] for row in rows_of(out / "corpus.jsonl")}
    dropped = [row for row in rows_of(out / "dropped.jsonl") if row["reason"] == "test-query"]
    assert [(row["_id"], row["role"]) for row in dropped] == [("f3", "query")]
    assert read_held_out([test]).leaks(training_queries(out)) == {}
    assert len(read_held_out([test]).leaks(training_queries(*sources("faq")))) == 1


def test_what_cannot_be_paired_is_refused(sources, run_step):
    with pytest.raises(MarError, match="queries or"):
        run_step(PAIRS)


def test_near_duplicates_of_a_test_are_reported_with_the_nearest(tmp_path, write):
    rows = [{"_id": "t0", "text": "小孩发烧怎么办呢"}, {"_id": "t1", "text": "小孩发烧怎么办"}]
    test = write(tmp_path / "test.jsonl", rows)
    leaks = read_held_out([test]).leaks(["小孩发烧怎么办？", "痛风不能吃什么"])
    assert leaks == {0: "test.jsonl:t1 1.0000"}
    assert HeldOut().leaks(["小孩发烧怎么办"]) == {}


def test_editions_are_known_by_their_queries_alone(data_root):
    for folder in (data_root / "MedTEBRetrieval", data_root / "MedTEBReranking"):
        assert read_held_out([folder]).texts == tuple(QUERIES.values())
    assert len(read_held_out([data_root / "MedTEBSTS"]).texts) == 12
    assert len(read_held_out([data_root]).texts) == 18


def test_queries_and_texts_are_read_from_training_data_of_all_forms(tmp_path, write):
    triple = {"query": "问一", "positive": "答一", "negative": "错一"}
    write(tmp_path / "build" / "train" / "triples.jsonl", [triple])
    write(tmp_path / "build" / "train" / "sts.jsonl", [{**triple, "query": "问二"}])
    write(tmp_path / "aligned" / "queries.jsonl", [{"_id": "a", "text": "问三", "source": 0}])
    write(tmp_path / "aligned" / "corpus.jsonl", [{"_id": "b", "title": "题", "text": "文", "source": 0}])
    write(tmp_path / "documents" / "corpus.jsonl", [{"_id": "b", "text": "文", "source": 0}])
    assert training_queries(tmp_path / "build") == ["问一", "问二"]
    assert training_queries(tmp_path / "build" / "train" / "triples.jsonl") == ["问一"]
    assert training_queries(tmp_path / "aligned") == ["问三"]
    assert training_queries(tmp_path / "documents") == []
    assert training_texts(tmp_path / "aligned") == ["问三", "题\n文"]
    assert training_texts(tmp_path / "build" / "train" / "triples.jsonl") == ["问一", "答一", "错一"]
