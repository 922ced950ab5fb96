"""Tests of reading rows from files: every format, damaged files, and places for messages."""

from __future__ import annotations

import gzip
import json

import datasets
import pyarrow as pa
import pytest
from pyarrow import parquet

from mar_st.data import DataError, locate
from mar_st.data.rows import Position, file_rows, hub_rows, json_rows

ROWS = [{"query": f"问{number}", "positive": f"答{number}，\t“好”\n再见"} for number in range(300)]


def _separated(rows, separator):
    def quoted(field):
        return '"' + field.replace('"', '""') + '"'

    lines = [separator.join(rows[0]), *(separator.join(map(quoted, row.values())) for row in rows)]
    return "\r\n".join(lines).encode()


def _write(path, rows=ROWS):
    if path.suffix == ".parquet":
        parquet.write_table(pa.Table.from_pylist(rows), path)
        return path
    name = path.name.removesuffix(".gz")
    if name.endswith("jsonl"):
        content = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    else:
        content = _separated(rows, "," if name.endswith("csv") else "\t")
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def _read(path):
    return [row for _, row in file_rows(path, Position())]


@pytest.mark.parametrize("end", ["jsonl", "jsonl.gz", "csv", "csv.gz", "tsv", "tsv.gz", "parquet"])
def test_every_format_holds_the_same_rows_and_is_read_to_its_end(tmp_path, end):
    path, position = _write(tmp_path / f"rows.{end}"), Position()
    assert [row for _, row in file_rows(path, position)] == ROWS
    assert position.done == pytest.approx(path.stat().st_size)


def test_places_name_the_line_that_an_editor_shows(tmp_path):
    lines = tmp_path / "rows.jsonl"
    lines.write_text('\n{"query": "a"}\n \n{"query": "b"}', "utf-8")
    assert [place for place, _ in file_rows(lines, Position())] == [f"{lines}:2", f"{lines}:4"]
    table = _write(tmp_path / "rows.parquet", ROWS[:2])
    assert [place for place, _ in file_rows(table, Position())] == [f"{table}, row 1", f"{table}, row 2"]
    fields = tmp_path / "rows.csv"
    fields.write_text('query\n"one\ntwo"\n\nthree\n', "utf-8")
    assert [place for place, _ in file_rows(fields, Position())] == [f"{fields}:3", f"{fields}:5"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"[1]", "expected a JSON object, got list"),
        (b"7", "expected a JSON object, got int"),
        (b'{"query": ', "not a JSON object"),
        (b'{"query": "\xff"}', "not a JSON object"),
        ('{"query": "问"}'.encode("utf-16"), "not a JSON object"),
        (b'{"a": ' + b"[" * 100_000, "not a JSON object"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not a JSON object"),
    ],
)
def test_a_line_that_is_no_object_is_named(tmp_path, line, message):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"query": "a"}\n' + line + b"\n")
    with pytest.raises(DataError, match=rf"rows\.jsonl:2: {message}"):
        _read(path)


def _damaged_parquet(content):
    return content[:40] + bytes(byte ^ 0xFF for byte in content[40:400]) + content[400:]


@pytest.mark.parametrize(
    ("end", "damage"),
    [
        ("jsonl.gz", lambda content: content[:-10]),
        ("jsonl.gz", lambda content: content[: len(content) // 2]),
        ("jsonl.gz", lambda content: content[:20] + b"\xff\xff\xff" + content[23:]),
        ("jsonl.gz", gzip.decompress),
        ("jsonl.gz", lambda content: content + b"more"),
        ("csv.gz", lambda content: content[:-10]),
        ("csv.gz", gzip.decompress),
        ("parquet", lambda content: b""),
        ("parquet", lambda content: content[:-50]),
        ("parquet", _damaged_parquet),
    ],
)
def test_a_damaged_file_is_one_error_that_names_it(tmp_path, end, damage):
    path = _write(tmp_path / f"rows.{end}")
    path.write_bytes(damage(path.read_bytes()))
    form = "Parquet" if end == "parquet" else "gzip"
    with pytest.raises(DataError, match=rf"rows\.{end} cannot be read as a {form} file .* again\."):
        _read(path)


@pytest.mark.parametrize("end", ["jsonl", "csv", "tsv.gz", "parquet"])
def test_a_missing_file_is_named(tmp_path, end):
    with pytest.raises(DataError, match=rf"none\.{end} is missing"):
        _read(tmp_path / f"none.{end}")


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_a_table_in_another_encoding_is_named(tmp_path, encoding):
    path = tmp_path / "rows.csv"
    path.write_bytes("query,positive\nété,été\n".encode(encoding))
    with pytest.raises(DataError, match=r"rows\.csv: is not UTF-8 after line 0 .* Save it as UTF-8"):
        _read(path)


def test_empty_fields_are_left_out_and_long_ones_kept(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(f" query , negative\n{'问' * 100_000},\n,错\n", "utf-8")
    assert _read(path) == [{"query": "问" * 100_000}, {"negative": "错"}]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere/rows.jsonl", "No training data at nowhere/rows.jsonl"),
        ("a" * 5000, "is not a path that can be read"),
        ("~no-such-user/rows.jsonl", "is not a path that can be read"),
        ("hub:org/name", "a file or a folder is needed"),
        ("package:no_such_package/train", "which is not installed"),
        ("package:no_such_package.inner/train", "which is not installed"),
        ("package:.medteb_mteb/train", "which is not installed"),
        ("package:__main__/train", "which is not installed|has no data"),
        ("package:medteb_mteb/NoSuchTask", "has no data NoSuchTask"),
    ],
)
def test_sources_that_are_nowhere_are_refused(name, message):
    with pytest.raises(DataError, match=message):
        locate(name)


def test_labels_of_nli_are_named_and_others_stay_numbers():
    features = datasets.Features(
        label=datasets.ClassLabel(names=["contradiction", "entailment"]),
        kind=datasets.ClassLabel(names=["no", "yes"]),
    )
    rows = datasets.Dataset.from_dict({"label": [1, -1, 0], "kind": [1, 0, 1]}, features=features)
    assert list(hub_rows("hub:org/nli", rows)) == [
        ("hub:org/nli, row 1", {"label": "entailment", "kind": 1}),
        ("hub:org/nli, row 2", {"label": -1, "kind": 0}),
        ("hub:org/nli, row 3", {"label": "contradiction", "kind": 1}),
    ]


def test_rows_before_a_bad_line_are_read(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"query": "a"}\n{"query": "b"}\n{"que')
    rows = json_rows(path)
    assert [next(rows), next(rows)] == [(1, {"query": "a"}), (2, {"query": "b"})]
    with pytest.raises(DataError, match=r"rows\.jsonl:3"):
        next(rows)


def test_a_parquet_file_names_each_column_once(tmp_path):
    columns = [pa.array(["头疼"]), pa.array(["布洛芬"]), pa.array(["休息"])]
    parquet.write_table(pa.table(columns, names=["query", "positive", "positive"]), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a\.parquet: the column 'positive' occurs twice"):
        _read(tmp_path / "a.parquet")
