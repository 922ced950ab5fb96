"""The reader of rows: formats, encodings, and errors that count all problems."""

from __future__ import annotations

import gzip
import json
import os
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset, DatasetDict

from mar_st.data.rows import Row, read_rows, row_files
from mar_st.errors import MarError

if TYPE_CHECKING:
    from pathlib import Path

ROWS = [{"_id": "1", "text": '糖尿病, "二型"\n随访'}, {"_id": "2", "text": "a\tb"}]


def _values(source: Path | str, table: str = "") -> list[dict[str, str]]:
    return [row.values for row in read_rows(source, table=table)]


def _lines(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "gb18030", "utf-16"])
@pytest.mark.parametrize(
    "name", ["r.jsonl", "r.json", "array.json", "array.jsonl.gz", "r.csv", "r.tsv", "r.jsonl.gz", "r.csv.gz"]
)
def test_text_formats_give_the_same_rows(tmp_path: Path, name: str, encoding: str) -> None:
    if ".csv" in name or ".tsv" in name:
        cell = ROWS[0]["text"].replace('"', '""')
        sep = "," if ".csv" in name else "\t"
        text = f'_id{sep}text\r\n1{sep}"{cell}"\r\n2{sep}"a\tb"\r\n'
    elif name.startswith("array"):
        text = json.dumps(ROWS, ensure_ascii=False, indent=1)
    else:
        text = "\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS) + "\n\n"
    content = text.encode(encoding)
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert _values(path) == ROWS


def test_parquet_and_saved_data_sets(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "rows.parquet")
    Dataset.from_list(ROWS).save_to_disk(tmp_path / "one")
    DatasetDict({"test": Dataset.from_list(ROWS[:1]), "corpus": Dataset.from_list(ROWS)}).save_to_disk(
        tmp_path / "two"
    )
    for name in ("rows.parquet", "one", "two"):
        assert _values(tmp_path / name) == ROWS


def test_tables_of_a_folder(tmp_path: Path) -> None:
    _lines(tmp_path / "queries.jsonl", '{"a": 1}')
    for folder in ("corpus", "more"):
        (tmp_path / folder).mkdir()
        for number in (1, 0):
            pq.write_table(pa.table({"n": [number]}), tmp_path / folder / f"corpus-{number}.parquet")
    assert _values(tmp_path, "corpus") == _values(tmp_path / "more", "corpus") == [{"n": 0}, {"n": 1}]
    assert _values(tmp_path, "queries") == _values(tmp_path) == [{"a": 1}]
    with pytest.raises(MarError, match="holds no triples"):
        row_files(tmp_path, "triples")


@pytest.mark.parametrize("separator", ["\t", ","])
@pytest.mark.parametrize("cell", ['"头疼', '"头"疼"', '头"疼"', '"头疼"怎么办', '"', '""头疼""'])
def test_a_cell_whose_quotes_are_not_those_of_csv_is_taken_as_it_is(tmp_path, cell, separator) -> None:
    lines = [f"text{separator}n", f"{cell}{separator}1", f'"a ""b"""{separator}2', f"{cell}{separator}3"]
    path = _lines(tmp_path / "r.tsv", *lines)
    values = [row.values for row in read_rows(path)]
    assert values == [{"text": cell, "n": "1"}, {"text": 'a "b"', "n": "2"}, {"text": cell, "n": "3"}]


def test_tables_are_found_in_every_format_and_folders_of_them_are_named(tmp_path: Path) -> None:
    for language in ("zh", "en"):
        (tmp_path / language).mkdir()
        (tmp_path / language / "corpus.json.gz").write_bytes(gzip.compress(b'[{"a": 1}]'))
    assert _values(tmp_path / "zh", "corpus") == [{"a": 1}]
    with pytest.raises(MarError, match="en, zh"):
        row_files(tmp_path, "corpus")


@pytest.mark.parametrize("name", ["r.jsonl", "r.csv", "r.parquet", "corpus.jsonl", "r.jsonl.gz"])
def test_a_pipe_in_the_place_of_a_file_is_refused(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    for source, table in ((tmp_path / name, ""), (tmp_path, "corpus")):
        with pytest.raises(MarError):
            list(read_rows(source, table=table))


def test_places(tmp_path: Path) -> None:
    path = _lines(tmp_path / "r.csv", "a,b", '1,"x', 'y"', "", "2,z")
    assert [row.place for row in read_rows(path)] == [f"{path}:2", f"{path}:5"]


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[1]",
        '{"a": 1, "a": 2}',
        '{"a": NaN}',
        '{"a": 1e999}',
        '{"a": "\\ud800"}',
        '{"b": {"a": -Infinity}}',
        "[" * 100_000,
    ],
)
def test_unusable_lines_are_counted_and_the_first_is_shown(tmp_path: Path, line: str) -> None:
    path = _lines(tmp_path / "r.jsonl", '{"a": 1}', line, '{"a": 2}', "{", "7")
    rows = read_rows(path)
    assert next(rows) == Row(f"{path}:1", {"a": 1})
    with pytest.raises(MarError, match=r"r\.jsonl:2: .*3 rows"):
        next(rows)


def test_what_make_refuses_is_counted_too(tmp_path: Path) -> None:
    path = _lines(tmp_path / "r.jsonl", '{"a": 1}', '{"b": 1}', "{", '{"b": 1}')

    def make(row: Row) -> int:
        if "a" not in row.values:
            raise MarError("no 'a'.")
        return int(row.values["a"])

    rows = read_rows(path, make)
    assert next(rows) == 1
    with pytest.raises(MarError, match=r"r\.jsonl:2: no 'a'\. \(3 rows"):
        next(rows)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("r.csv", b"a,a\n1,2\n"),
        ("r.csv", b"a,b\n1\n"),
        ("r.tsv", b"a\tb\n\xff\t2\nx\ty\n\xe4\xbd\xa0\t2\n"),
        ("r.jsonl", b'{"a": "\xe4\xbd\xa0"}\n{"a": "\xff"}\n'),
        ("r.jsonl.gz", b"not gzip"),
        ("r.parquet", b"PAR1 no"),
        ("r.md", b"text"),
        ("r.txt", b"a\n\xe4\xbd\xa0\n\xff"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(MarError, match=name.replace(".", r"\.")):
        list(read_rows(tmp_path / name))


@pytest.mark.parametrize(
    "source", ["absent.jsonl", "package:nothing/x", "package:mar_st/absent", "a\0b", "~nobody_/x"]
)
def test_missing_sources(source: str) -> None:
    with pytest.raises(MarError):
        list(read_rows(source))
