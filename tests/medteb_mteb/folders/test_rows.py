"""Rows of JSONL, TSV, TREC and Parquet files, and the values in them."""

from __future__ import annotations

import json

import pytest

from medteb_mteb.folders import FolderError
from medteb_mteb.folders.problems import Problems
from medteb_mteb.folders.rows import iter_rows, read_rows

BIG = "1" * 5000


@pytest.fixture
def read(tmp_path):
    """Reads a file of these bytes; gives values by line, and the problems."""

    def call(name, data, **options):
        (tmp_path / name).write_bytes(data if isinstance(data, bytes) else data.encode())
        problems = Problems(tmp_path)
        rows = list(iter_rows(tmp_path / name, problems, **options))
        assert all(row.file == tmp_path / name for row in rows)
        return {row.line: row.values for row in rows}, problems.shown

    return call


@pytest.fixture
def read_parquet(tmp_path):
    """Reads a Parquet file of these columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def call(**columns):
        pq.write_table(pa.table(columns), tmp_path / "x.parquet")
        problems = Problems(tmp_path)
        return list(iter_rows(tmp_path / "x.parquet", problems)), problems.shown

    return call


@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n \t\n"])
@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
def test_line_ends_blank_lines_and_a_byte_order_mark_are_harmless(read, start, end):
    rows, problems = read("a.jsonl", start + f'{{"a": "一\u2028\u0085"}}{end}{{"a": 2}}{end}'.encode())
    assert list(rows.values()) == [{"a": "一\u2028\u0085"}, {"a": 2}]
    assert problems == []
    rows, problems = read("a.tsv", start + f"a\tb{end}一\u2028\t{end}".encode())
    assert list(rows.values()) == [{"a": "一\u2028", "b": ""}]
    assert problems == []


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"a": 1', "malformed JSON at column 8"),
        ('{"a": 1} {"a": 2}', "malformed JSON at column 10: Extra data"),
        (b"\x00\x00\x00", "malformed JSON at column 1"),  # left by a power cut
        (b'{"a": "\xff"}', "not valid UTF-8 at byte 8 of the line"),
        ('{"a": 1}'.encode("utf-16"), "not valid UTF-8 at byte 1 of the line"),
        ("[1]", "expected a JSON object, got list"),
        ("null", "expected a JSON object, got NoneType"),
        (f'{{"a": {BIG}}}', "a number of more digits than can be read"),
        ('{"a": ' * 100_000, "JSON nested too deeply"),
    ],
)
def test_a_broken_line_is_named_and_costs_only_itself(read, line, problem):
    data = line if isinstance(line, bytes) else line.encode()
    rows, (shown,) = read("a.jsonl", b'{"a": 1}\n' + data + b'\n{"a": 3}\n')
    assert rows == {1: {"a": 1}, 3: {"a": 3}}
    assert shown.startswith("a.jsonl:2: ")
    assert problem in shown


def test_rows_of_a_tsv_file_have_the_cells_of_its_header(read):
    rows, problems = read("a.tsv", "query-id\tscore\nq1\t1\nq2\nq3\t2\t3\n17\t 4 \n")
    assert rows == {2: {"query-id": "q1", "score": "1"}, 5: {"query-id": "17", "score": " 4 "}}
    assert problems == [
        "a.tsv:3: 1 tab-separated cells, the header has 2",
        "a.tsv:4: 3 tab-separated cells, the header has 2",
    ]


@pytest.mark.parametrize("name", ["a.qrels", "a.TREC"])
def test_qrels_of_trec_have_four_columns_apart_by_any_blanks(read, name):
    rows, (problem,) = read(name, "q1 0 d1 2\nq1\tQ0  d2\t0\r\nq1 d3 1\n")
    assert rows == {
        1: {"query-id": "q1", "corpus-id": "d1", "score": "2"},
        2: {"query-id": "q1", "corpus-id": "d2", "score": "0"},
    }
    assert problem == f"{name}:3: 3 columns, TREC qrels have 4: query, iteration, document, grade"


@pytest.mark.parametrize(
    ("name", "data"), [("a.jsonl", ""), ("a.jsonl", "\n \n"), ("a.tsv", "a\tb\n"), ("a.qrels", "")]
)
def test_a_file_without_rows_is_a_problem_unless_it_may_be_empty(read, name, data):
    assert read(name, data) == ({}, [f"{name}: the file holds no rows"])
    assert read(name, data, may_be_empty=True) == ({}, [])


def test_a_file_of_broken_lines_is_not_called_empty(read):
    assert len(read("a.jsonl", "{\n")[1]) == 1


def test_files_that_cannot_be_opened_are_problems(tmp_path):
    for name in ("folder.jsonl", "folder.tsv", "folder.parquet"):
        (tmp_path / name).mkdir()
    problems = Problems(tmp_path)
    names = (
        "folder.jsonl",
        "gone.jsonl",
        "folder.tsv",
        "gone.qrels",
        "folder.parquet",
        "gone.parquet",
        "a.csv",
    )
    assert read_rows([tmp_path / name for name in names], problems) == []
    assert [shown.partition(":")[0] for shown in problems.shown] == list(names)
    assert problems.shown[0] == "folder.jsonl: cannot be read (Is a directory)"
    assert problems.shown[-1] == "a.csv: expected one of .jsonl, .tsv, .parquet"
    with pytest.raises(FolderError):
        problems.raise_if_any()


def test_rows_of_several_files_keep_their_order_and_their_lines(tmp_path):
    for name in ("b", "a"):
        (tmp_path / f"{name}.jsonl").write_text(f'{{"n": "{name}1"}}\n\n{{"n": "{name}2"}}\n')
    rows = read_rows([tmp_path / "b.jsonl", tmp_path / "a.jsonl"], Problems(tmp_path))
    assert [(row.values["n"], row.line) for row in rows] == [("b1", 1), ("b2", 3), ("a1", 1), ("a2", 3)]


def test_parquet_gives_the_rows_of_jsonl(read, read_parquet):
    columns = {"_id": ["1", "2"], "n": [1, None], "list": [["a", "b"], []], "in": [{"x": 1.5}, {"x": None}]}
    lines = [
        json.dumps(dict(zip(columns, values, strict=True))) for values in zip(*columns.values(), strict=True)
    ]
    rows, problems = read_parquet(**columns)
    assert ({row.line: row.values for row in rows}, problems) == read("a.jsonl", "\n".join(lines))


@pytest.mark.parametrize(("number", "kind"), [(2**62, "timestamp"), (2**30, "date32"), (2**62, "duration")])
def test_parquet_with_a_date_beyond_the_years_of_python_is_a_problem(read_parquet, number, kind):
    import pyarrow as pa

    types = {"timestamp": pa.timestamp("us"), "date32": pa.date32(), "duration": pa.duration("s")}
    rows, (problem,) = read_parquet(_id=["1"], when=pa.array([number], types[kind]))
    assert rows == []
    assert problem.startswith("x.parquet: not readable as Parquet: ")


def test_half_of_a_parquet_file_is_a_problem(read_parquet, tmp_path):
    read_parquet(_id=["1", "2"])
    half = (tmp_path / "x.parquet").read_bytes()[:-20]
    for data in (half, b"", b"PAR1" * 10):
        (tmp_path / "y.parquet").write_bytes(data)
        problems = Problems(tmp_path)
        assert read_rows([tmp_path / "y.parquet"], problems) == []
        assert problems.shown[0].startswith("y.parquet: not readable as Parquet: ")


def test_a_table_names_each_column_once(read, tmp_path):
    assert read("a.tsv", "_id\ttext\ttext\n1\t头疼\t发热\n") == (
        {},
        ["a.tsv:1: the column 'text' occurs twice"],
    )
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    columns = [pa.array(["1"]), pa.array(["头疼"]), pa.array(["发热"])]
    pq.write_table(pa.table(columns, names=["_id", "text", "text"]), tmp_path / "a.parquet")
    problems = Problems(tmp_path)
    assert list(iter_rows(tmp_path / "a.parquet", problems)) == []
    assert problems.shown == ["a.parquet: the column 'text' occurs twice"]
