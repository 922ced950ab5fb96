"""Files of an edition: what is written is what the readers of the Hub layout give back."""

from __future__ import annotations

import json

import pytest

from medteb_mteb.curation.files.layout import write_disputed, write_qrels, write_rows, write_texts
from medteb_mteb.curation.files.records import BuildError, Text
from medteb_mteb.folders import read_folder

#: Characters at which Python ends a line, and the readers of JSON lines do not.
ODD = "甲\u2028乙\x85丙\x0b丁\x1e戊\r己\n庚\t辛\ufeff壬\0癸 \U0001f600"


def written(folder, queries, documents, qrels, disputed=None):
    write_texts(folder / "corpus.jsonl", documents, titles=True)
    write_texts(folder / "queries.jsonl", queries, titles=False)
    write_qrels(folder, qrels)
    write_disputed(folder, disputed or {})
    return read_folder(folder).retrieval


def test_the_reader_gives_back_what_was_written(tmp_path):
    documents = [Text("d1", ODD, title="题"), Text("d 2", "二"), Text("三", "三"), Text("d4", "四")]
    data = written(
        tmp_path / "new" / "edition",
        [Text("q1", "问"), Text("q2", ODD)],
        documents,
        {"q2": {"d 2": 0, "d1": 2}, "q1": {"三": 1}},
        {"q1": ["d4"]},
    )
    assert data.corpus == [{"id": d.id, "title": d.title, "text": d.text} for d in documents]
    assert data.queries == [{"id": "q1", "text": "问"}, {"id": "q2", "text": ODD}]
    positives = {query: {d: s for d, s in row.items() if s} for query, row in data.qrels.items()}
    assert positives == {"q1": {"三": 1}, "q2": {"d1": 2}}
    assert {query: set(names) for query, names in data.judged.negatives.items() if names} == {"q2": {"d 2"}}
    assert {query: set(names) for query, names in data.judged.disputed.items() if names} == {"q1": {"d4"}}


def test_the_title_of_a_query_is_part_of_its_text(tmp_path):
    write_texts(tmp_path / "queries.jsonl", [Text("q", "文", title="题")], titles=False)
    assert json.loads((tmp_path / "queries.jsonl").read_bytes()) == {"_id": "q", "text": "题\n文"}


def test_negatives_are_in_the_labels_alone(tmp_path):
    write_qrels(tmp_path, {"q": {"d2": 1, "d1": 0}, "p": {"d1": 0}})
    header = "query-id\tcorpus-id\tscore\n"
    assert (tmp_path / "qrels" / "test.tsv").read_bytes().decode() == f"{header}q\td2\t1\n"
    assert (tmp_path / "labels.tsv").read_bytes().decode() == f"{header}q\td1\t0\nq\td2\t1\np\td1\t0\n"


def test_the_order_of_the_documents_changes_no_byte(tmp_path):
    for name, row in (("one", {"d1": 1, "d2": 0, "d3": 2}), ("two", {"d3": 2, "d1": 1, "d2": 0})):
        write_qrels(tmp_path / name, {"q": row})
    for file in ("qrels/test.tsv", "labels.tsv"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


@pytest.mark.parametrize("disputed", [{}, {"q": []}])
def test_there_is_no_file_of_disputed_pairs_without_such_pairs(tmp_path, disputed):
    write_disputed(tmp_path, disputed)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("separator", ["\t", "\n", "\r", "\r\n"])
def test_an_id_that_would_break_a_table_is_refused_before_anything_is_written(tmp_path, separator):
    bad = f"a{separator}b"
    for qrels in ({bad: {"d": 1}}, {"q": {"d": 1, bad: 0}}):
        with pytest.raises(BuildError, match=r"The id .a\\.* has a tab or a line break"):
            write_qrels(tmp_path, qrels)
        with pytest.raises(BuildError, match="Give this text another id"):
            write_disputed(tmp_path, qrels)
    assert list(tmp_path.iterdir()) == []


def test_rows_replace_an_earlier_file(tmp_path):
    path = tmp_path / "deep" / "down" / "rows.jsonl"
    write_rows(path, [{"a": "感冒"}, {"a": 2}])
    write_rows(path, iter([{"a": "感冒"}]))
    assert path.read_bytes() == '{"a": "感冒"}\n'.encode()
