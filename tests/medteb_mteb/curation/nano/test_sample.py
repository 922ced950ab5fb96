from __future__ import annotations

import json
from itertools import product

import pytest

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.nano.sample import SourceRows, read_source, sample, select_queries


def corpus(number: int) -> list[tuple[str, str]]:
    return [(f"d{i}", f"文档{i}") for i in range(number)]


def test_queries_are_the_first_with_a_positive_and_a_new_text():
    queries = [("a", "甲"), ("b", "乙"), ("c", "甲"), ("a", "丙"), ("d", "丁"), ("e", ""), ("f", "戊")]
    qrels = [("f", "d1", 1), ("c", "d1", 1), ("a", "d2", 2), ("b", "d1", 0), ("d", "d1", 1), ("e", "d1", 1)]
    assert select_queries(queries, qrels) == {"a": "甲", "d": "丁", "f": "戊"}
    assert select_queries(queries, qrels, 2) == {"a": "甲", "d": "丁"}


def test_the_corpus_is_positives_then_negatives_in_turn_then_source_order():
    source = SourceRows(
        [("q2", "二"), ("q1", "一")],
        corpus(12),
        [
            ("q2", "d9", 1),
            ("q1", "d7", 0),
            ("q2", "d5", -1),
            ("q1", "d8", 1),
            ("q1", "d6", 0),
            ("q2", "d4", 0),
            ("q1", "d3", 0),
            ("other", "d11", 0),
        ],
    )
    data = sample(source, "s", documents=9).data
    # positives in the order of the qrels; one negative of each query in turn, by the queries' ids
    assert list(data.corpus) == ["d9", "d8", "d7", "d5", "d6", "d4", "d3", "d0", "d1"]
    assert list(data.queries) == ["q2", "q1"]
    assert data.qrels == {"q2": ["d9"], "q1": ["d8"]}


def test_repeated_ids_and_texts_are_left_out():
    rows = [("d0", "同"), ("d1", "同"), ("d1", "别"), ("d2", ""), ("d3", "三"), ("d4", "四"), ("d5", "三")]
    qrels = [("q", "d1", 1), ("q", "d5", 1), ("q", "d1", 1), ("r", "d0", 1), ("s", "d9", 1), ("s", "d2", 1)]
    drawn = sample(SourceRows([("q", "问"), ("r", "答"), ("s", "无")], rows, qrels), "s")
    assert drawn.data.corpus == {"d1": "同", "d5": "三", "d4": "四"}
    assert drawn.data.qrels == {"q": ["d1", "d5"]}
    assert list(drawn.data.queries) == ["q"]  # the positive of r repeats a text, those of s do not exist
    assert drawn.left_out["queries without a positive in the corpus"] == 2
    assert drawn.left_out["judged documents that the corpus lacks"] == 2


def test_positives_of_a_query_are_bounded():
    qrels = [("q", f"d{i}", 1) for i in range(150)]
    drawn = sample(SourceRows([("q", "问")], corpus(200), qrels), "s")
    assert drawn.data.qrels["q"] == [f"d{i}" for i in range(100)]
    assert drawn.left_out == {"positives beyond 100 of a query": 50}
    assert len(drawn.data.corpus) == 200


def test_titles_of_a_folder_are_joined_to_texts_and_blanks_stripped(tmp_path):
    folder = tmp_path / "source"
    (folder / "qrels").mkdir(parents=True)
    rows = [
        {"_id": 1, "title": " 标题 ", "text": " 正文\n"},
        {"_id": 2, "title": "同", "text": "同"},
        {"_id": 3, "title": "只有标题", "text": ""},
        {"_id": 4, "title": "", "text": "  "},
    ]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "queries.jsonl").write_text(json.dumps({"_id": "q", "text": " 问 "}) + "\n")
    (folder / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\nq\t1\t1\nq\t3\t0\n")
    (folder / "README.md").write_text("---\nlanguage: [zh]\n---\n")
    source = read_source(folder, "dev")
    assert list(source.corpus) == [("1", "标题\n\n正文"), ("2", "同"), ("3", "只有标题"), ("4", "")]
    assert (source.queries, source.languages) == ([("q", "问")], ["zh"])
    assert list(sample(source, "s").data.corpus) == ["1", "3", "2"]


def test_what_cannot_be_drawn_is_refused(make_folder):
    nothing = SourceRows([("q", "问")], corpus(3), [("q", "d1", 0)])
    with pytest.raises(BuildError, match="No query has a positive"):
        sample(nothing, "s")
    with pytest.raises(BuildError, match="queries is at least 1; got 0"):
        sample(nothing, "s", queries=0)
    with pytest.raises(BuildError, match="expected a retrieval folder"):
        read_source(make_folder("STS"))
    folder = make_folder("Retrieval")
    (folder / "queries.jsonl").write_text('{"name": "q1"}\n')
    with pytest.raises(BuildError, match=r"queries.jsonl:1: expected the columns _id and text"):
        read_source(folder)


def test_a_sample_has_the_sizes_asked_for():
    source = SourceRows(
        [(f"q{i}", f"问{i}") for i in range(300)],
        corpus(500),
        [(f"q{i}", f"d{(7 * i + j) % 500}", 1) for i, j in product(range(300), range(2))],
    )
    data = sample(source, "s", documents=450).data
    assert (len(data.queries), len(data.corpus)) == (200, 450)
    assert all(document in data.corpus for row in data.qrels.values() for document in row)
