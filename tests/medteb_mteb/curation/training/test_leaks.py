from __future__ import annotations

import pytest

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.training import HeldOut, read_held_out, training_queries, training_texts


def test_near_duplicates_of_a_test_are_reported_with_the_nearest(tmp_path, write):
    write(
        tmp_path / "test.jsonl",
        [{"_id": "t0", "text": "小孩发烧怎么办呢"}, {"_id": "t1", "text": "小孩发烧怎么办"}],
    )
    leaks = read_held_out([tmp_path / "test.jsonl"]).leaks(["小孩发烧怎么办？", "痛风不能吃什么"])
    assert leaks == {0: "test.jsonl:t1 1.0000"}
    assert HeldOut().leaks(["小孩发烧怎么办"]) == {}


def test_editions_are_known_by_their_queries_alone(data_root, retrieval_folder, tmp_path):
    retrieval_folder(tmp_path / "plain")
    queries = ("感冒发烧了怎么办", "血糖高不能吃什么", "血压高的药能停吗")
    for folder in (data_root / "MedTEBRetrieval", data_root / "MedTEBReranking", tmp_path / "plain"):
        assert read_held_out([folder]).texts == queries
    pairs = read_held_out([data_root / "MedTEBSTS"])
    assert set(pairs.texts) >= {"小孩发烧怎么办", "小孩发热会烧坏脑子吗"}
    assert len(pairs.texts) == 10


def test_a_folder_of_files_and_what_a_step_wrote_are_sources_too(tmp_path, write):
    write(tmp_path / "some" / "a.jsonl", [{"_id": "a", "text": "甲"}])
    write(tmp_path / "some" / "b.jsonl", [{"_id": "b", "text": "乙"}])
    write(tmp_path / "step" / "records-00000.jsonl", [{"_id": "c", "text": "丙"}])
    for name in ("step.json", "manifest.json"):
        (tmp_path / "step" / name).write_text("{}")
    held_out = read_held_out([tmp_path / "some", tmp_path / "step"])
    assert held_out.texts == ("甲", "乙", "丙")
    assert held_out.digest() != read_held_out([tmp_path / "some"]).digest()
    assert held_out.digest() != read_held_out([tmp_path / "some", tmp_path / "step"], 0.5).digest()


def test_invalid_thresholds_and_sources_are_refused(tmp_path):
    with pytest.raises(BuildError, match="between 0 and 1; got 2"):
        read_held_out([], 2)
    with pytest.raises(BuildError, match="There is no"):
        read_held_out([tmp_path / "gone"])


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
