from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from medteb_mteb.curation.files.read import read_texts, source_digest
from medteb_mteb.curation.files.records import BuildError, Text
from medteb_mteb.folders.problems import FolderError

ROWS = [
    {"_id": "a", "title": "感冒", "text": "多喝水，注意休息。", "department": "内科"},
    {"_id": "b", "title": "", "text": "饭后服用，一日三次。", "department": "药房"},
]
TEXTS = [
    Text("a", "多喝水，注意休息。", "感冒", meta={"department": "内科"}),
    Text("b", "饭后服用，一日三次。", "", meta={"department": "药房"}),
]


def jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize("kind", ["jsonl", "csv", "tsv", "parquet"])
def test_every_format_gives_the_same_texts(tmp_path, kind):
    file = tmp_path / f"corpus.{kind}"
    if kind == "jsonl":
        jsonl(file, ROWS)
    elif kind == "parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), file)
    else:
        mark = "," if kind == "csv" else "\t"
        lines = [mark.join(ROWS[0]), *(mark.join(row.values()) for row in ROWS)]
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert list(read_texts(file)) == TEXTS
    assert list(read_texts(tmp_path)) == TEXTS


def test_columns_may_be_named_and_ids_follow_from_the_content(tmp_path):
    file = jsonl(tmp_path / "q.jsonl", [{"问题": "发烧怎么办", "source": "x"}, {"问题": "头疼"}])
    first, second = read_texts(file, {"text": "问题"})
    assert (first.text, first.meta) == ("发烧怎么办", {"source": "x"})
    assert first.id != second.id
    again = jsonl(tmp_path / "r.jsonl", [{"text": "发烧怎么办"}])
    assert next(read_texts(again)).id == first.id
    with pytest.raises(BuildError, match="'body' is not a field of a text; choose from id, text, title"):
        list(read_texts(file, {"body": "问题"}))


def test_copies_of_a_text_without_an_id_are_dropped_and_counted(tmp_path, caplog):
    rows = [
        {"text": "头疼"},
        {"text": "发烧"},
        {"text": "头疼"},
        {"title": "题", "text": "头疼"},
        {"text": "头疼"},
    ]
    file = jsonl(tmp_path / "q.jsonl", rows)
    dropped = Counter()
    assert [text.full for text in read_texts(file, dropped=dropped)] == ["头疼", "发烧", "题\n头疼"]
    assert (dropped, caplog.messages) == ({"repeated": 2}, [])
    assert len(list(read_texts(file))) == 3
    assert caplog.messages == [f"{file}: 2 rows without an id repeat an earlier text and are dropped"]


@pytest.mark.parametrize(
    ("name", "content"), [("c.csv", "_id,text\n"), ("c.tsv", "_id\ttext\n"), ("c.csv", "")]
)
def test_a_file_without_rows_is_named(tmp_path, name, content):
    jsonl(tmp_path / "a.jsonl", ROWS)
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(FolderError, match=rf"{name}: the file holds n"):
        list(read_texts(tmp_path))
    with pytest.raises(FolderError, match=rf"{name}: the file holds n"):
        list(read_texts(tmp_path / name))


def test_a_column_named_anonymised_is_not_trusted(tmp_path):
    file = jsonl(tmp_path / "q.jsonl", [{"text": "张三，电话 13800138000", "anonymised": "yes"}])
    (text,) = read_texts(file)
    assert text.anonymised == ""


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"_id": "a", "text": "x"}, {"_id": "a", "text": "y"}], r"q.jsonl:2: the id 'a' is taken"),
        ([{"_id": "a", "text": "  "}], r"q.jsonl:1: 'text' is empty"),
        ([{"_id": "a\tb", "text": "x"}], r"q.jsonl:1: the id 'a.tb' has a tab or a line break"),
        ([{"_id": "a\r\n", "text": "x"}], r"q.jsonl:1: the id 'a.r.n' has a tab or a line break"),
        (
            [{"_id": "a", "texts": "x"}],
            r"q.jsonl:1: expected a column text or .*; the columns are _id, texts",
        ),
        ([{"_id": None, "text": "x"}], r"q.jsonl:1: '_id' is empty"),
        ([{"_id": "a", "text": "x", "title": 3}], r"q.jsonl:1: 'title' is not text"),
        ([{"_id": "a", "text": "x", "title": "\ud800"}], r"q.jsonl:1: 'title' is not text"),
        ([{"text": "x", "title": "\ud800"}], r"q.jsonl:1: 'title' is not text"),
        ([{"text": "x", "from": ["\ud800"]}], r"q.jsonl:1: 'from' holds half of a surrogate pair"),
        ([{"text": "x", "\ud800": 1}], r"q.jsonl:1: '.ud800' holds half of a surrogate pair"),
        ([{"text": "x", "meta": {"a": "\ud800"}}], r"q.jsonl:1: 'a' holds half of a surrogate pair"),
        ([{"text": "x", "score": float("inf")}], r"q.jsonl:1: 'score' is inf, which JSON cannot hold"),
    ],
)
def test_unusable_rows_are_named_with_their_line(tmp_path, rows, message):
    with pytest.raises(FolderError, match=message):
        list(read_texts(jsonl(tmp_path / "q.jsonl", rows)))


def test_a_column_without_a_name_is_no_title(tmp_path):
    """pandas writes its index as such a column."""
    file = tmp_path / "q.csv"
    file.write_text(",_id,text\n0,a,头疼\n1,b,发热\n", encoding="utf-8")
    assert [(text.id, text.full) for text in read_texts(file)] == [("a", "头疼"), ("b", "发热")]


def test_columns_of_parquet_become_json(tmp_path):
    noon = dt.datetime(2020, 1, 2, 12, tzinfo=dt.UTC)
    columns = {
        "date": noon.date(),
        "at": noon,
        "took": noon - noon,
        "price": Decimal("1.50"),
        "none": float("nan"),
    }
    pq.write_table(pa.Table.from_pylist([{"text": "头疼发热", **columns}]), tmp_path / "q.parquet")
    (text,) = read_texts(tmp_path / "q.parquet")
    assert text.meta == {
        "date": "2020-01-02", "at": "2020-01-02T12:00:00+00:00", "took": "0:00:00", "price": "1.50"
    }  # fmt: skip
    assert json.loads(json.dumps(text.meta, allow_nan=False)) == text.meta


def test_columns_of_bytes_are_refused(tmp_path):
    pq.write_table(pa.table({"text": ["头疼发热"], "image": [b"x"]}), tmp_path / "q.parquet")
    with pytest.raises(FolderError, match=r"q.parquet:row 1: 'image' holds bytes, which JSON cannot hold"):
        list(read_texts(tmp_path / "q.parquet"))


def test_a_cell_of_csv_may_be_as_long_as_a_document(tmp_path):
    (tmp_path / "q.csv").write_text(f"text\n{'药' * 140_000}\n", encoding="utf-8")
    (text,) = read_texts(tmp_path / "q.csv")
    assert len(text.text) == 140_000


def test_a_csv_file_with_too_few_cells_or_broken_bytes_is_refused(tmp_path):
    file = tmp_path / "q.csv"
    file.write_text('_id,text\na,"两\n行"\nb\n', encoding="utf-8")
    with pytest.raises(FolderError, match=r"q.csv:4: expected 2 cells"):
        list(read_texts(file))
    file.write_bytes("_id,text\na,头疼发热\n".encode("gb18030"))
    with pytest.raises(FolderError, match="not valid UTF-8"):
        list(read_texts(file))


def test_errors_of_missing_sources_say_what_to_give(tmp_path):
    with pytest.raises(BuildError, match="Give a file, a folder, or hub:"):
        list(read_texts(tmp_path / "gone"))
    with pytest.raises(BuildError, match=r"holds no \.jsonl"):
        list(read_texts(tmp_path))
    (tmp_path / "x.pdf").write_bytes(b"%PDF")
    with pytest.raises(BuildError, match=r"none of \.jsonl"):
        list(read_texts(tmp_path / "x.pdf"))
    with pytest.raises(BuildError, match="cannot be loaded"):
        list(read_texts("hub:nobody/nothing"))


def test_the_digest_follows_content_names_and_columns(tmp_path):
    file = jsonl(tmp_path / "q.jsonl", ROWS)
    first = source_digest(file)
    assert source_digest(tmp_path) == first
    assert source_digest(file, {"text": "title"}) != first
    jsonl(file, ROWS[:1])
    assert source_digest(file) != first


def test_a_csv_file_names_each_column_once(tmp_path):
    (tmp_path / "a.csv").write_text("text,dept,dept\n头疼发热,内科,外科\n", encoding="utf-8")
    with pytest.raises(FolderError, match=r"a\.csv:1: the column 'dept' occurs twice"):
        list(read_texts(tmp_path / "a.csv"))


def test_problems_of_a_file_begin_with_its_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    for name in ("a.jsonl", "sub/a.jsonl"):
        Path(name).write_text('{"_id": "1", "text": ""}\n')
        with pytest.raises(FolderError) as one:
            list(read_texts(name))
        assert str(one.value) == f"{name}:1: 'text' is empty or not text"
        Path(name).write_text('{"_id": "1", "text": ""}\n' * 2)
        with pytest.raises(FolderError) as two:
            list(read_texts(name))
        assert str(two.value).splitlines()[:2] == [
            f"{name}: 2 problems",
            "  a.jsonl:1: 'text' is empty or not text",
        ]
    with pytest.raises(FolderError) as folder:
        list(read_texts("."))
    assert str(folder.value).splitlines()[0] == f"{tmp_path}: 2 problems"
