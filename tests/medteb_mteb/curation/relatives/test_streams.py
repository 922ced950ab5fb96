"""Tables that are read row by row."""

from __future__ import annotations

import csv
import gzip

import pytest

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.relatives import streams
from medteb_mteb.curation.relatives.streams import iter_csv, parse_jsonl


def write(path, data):
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_cells_may_have_lines(tmp_path, name):
    path = write(tmp_path / name, b'b, a ,c\r\n1,"x\r\ny, ""z""",3\n\n4,,6\n')
    assert list(iter_csv(path, ("a", "b"))) == [{"a": 'x\r\ny, "z"', "b": "1"}, {"a": "", "b": "4"}]


def test_rows_come_before_the_end_is_read(tmp_path):
    whole = gzip.compress(b"a\n" + b"".join(b"%d\n" % number for number in range(200_000)))
    (tmp_path / "a.csv.gz").write_bytes(whole[: len(whole) // 2])
    rows = iter_csv(tmp_path / "a.csv.gz", ("a",))
    assert [next(rows)["a"] for _ in range(3)] == ["0", "1", "2"]
    with pytest.raises(BuildError, match=r"a\.csv\.gz cannot be read \(Compressed file ended"):
        list(rows)


@pytest.mark.thorough
def test_too_much_is_refused(tmp_path, monkeypatch, request):
    bomb = write(tmp_path / "a.csv.gz", b"a\n" + b"0\n" * 2_000_000)
    with pytest.raises(BuildError, match="unpacks to more than"):
        list(iter_csv(bomb, ("a",)))
    monkeypatch.setattr(streams, "MAX_LINE_BYTES", 10)
    with pytest.raises(BuildError, match=r"b\.csv:2: a line of more than 10 bytes; it is refused"):
        list(iter_csv(write(tmp_path / "b.csv", b"a\n" + b"x" * 11 + b"\n"), ("a",)))
    monkeypatch.setattr(streams, "MAX_CELL_CHARACTERS", 10)
    before = csv.field_size_limit()
    request.addfinalizer(lambda: csv.field_size_limit(before))
    with pytest.raises(BuildError, match="field larger than field limit"):
        list(iter_csv(write(tmp_path / "c.csv", b'a\n"x\ny\nx\ny\nx\ny\n'), ("a",)))


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_objects_of_json_lines_come_one_by_one(tmp_path, name, monkeypatch):
    path = write(tmp_path / name, b'\xef\xbb\xbf{"a": 1}\r\n\n{"a": "\xe2\x80\xa8"}\n[1]\n')
    rows = parse_jsonl(path)
    assert [next(rows), next(rows)] == [{"a": 1}, {"a": "\u2028"}]
    with pytest.raises(BuildError, match=r":4: expected a JSON object, got \[1\]"):
        next(rows)
    monkeypatch.setattr(streams, "MAX_LINE_BYTES", 5)
    with pytest.raises(BuildError, match=":1: a line of more than 5 bytes; it is refused"):
        next(parse_jsonl(path))


def test_json_lines_that_were_cut_are_one_clear_error(tmp_path):
    whole = gzip.compress(b"".join(b'{"a": %d}\n' % number for number in range(50_000)))
    (tmp_path / "a.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BuildError, match=r"a\.jsonl\.gz cannot be read \(Compressed file ended"):
        list(parse_jsonl(tmp_path / "a.jsonl.gz"))
