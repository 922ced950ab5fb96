"""Tests of the pass over a corpus before it is encoded: shards, digests, duplicates, changed files."""

from __future__ import annotations

import gzip
import hashlib
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mar_st.encode import CorpusError
from mar_st.encode.corpus import read_corpus
from mar_st.encode.scan import Scan, ShardReader, rows_digest, scan_corpus

if TYPE_CHECKING:
    from pathlib import Path


def lines(rows: list[Any]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def scan(path: Path, rows: int) -> Scan:
    return scan_corpus(path, rows, show_progress=False)


def many(number: int) -> list[dict[str, str]]:
    return [{"_id": f"d{i}", "title": "", "text": f"第{i}份文件"} for i in range(number)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.jsonl"
    path.write_text(lines(many(23)), encoding="utf-8")
    return path


@pytest.mark.parametrize("form", ["jsonl", "jsonl.gz", "parquet"])
def test_shards_are_read_in_any_order(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"c.{form}"
    rows = many(23)
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        text = "\n" + lines(rows).replace("\n", "\n\n", 3)  # empty lines do not count
        path.write_bytes(gzip.compress(text.encode()) if form.endswith("gz") else text.encode())
    scanned = scan(path, 5)
    assert (scanned.count, len(scanned.shards), scanned.size(4)) == (23, 5, 3)
    reader = ShardReader(scanned)
    for number in (1, 2, 4, 0, 3, 3):
        expected = [f"d{i}" for i in range(5 * number, min(5 * number + 5, 23))]
        assert [entry.id for entry in reader.read(number)] == expected
    assert scanned.digest == scan(path, 7).digest


@pytest.mark.parametrize("rows", [1, 5, 23, 24])
def test_shards_of_any_size_hold_the_corpus(file: Path, rows: int) -> None:
    scanned, entries = scan(file, rows), list(read_corpus(file))
    read = [ShardReader(scanned).read(number) for number in range(len(scanned.shards))]
    assert [entry for shard in read for entry in shard] == entries
    assert [len(shard) for shard in read] == [scanned.size(number) for number in range(len(read))]
    assert tuple(map(rows_digest, read)) == scanned.shards
    assert scanned.digest == rows_digest(entries)


def test_documents_that_are_appended_leave_the_finished_shards(file: Path) -> None:
    before = scan(file, 5)
    file.write_text(lines(many(40)), encoding="utf-8")
    after = scan(file, 5)
    assert after.shards[:4] == before.shards[:4]
    assert after.shards[4] != before.shards[4]  # it was not full
    assert after.digest != before.digest


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("第8份", "第9份"),
        lambda text: text.replace('"d8"', '"e8"'),
        lambda text: text[: text.index('{"_id": "d8"')],
        lambda text: text.replace('{"_id": "d8"', '{"_id": "new", "text": "文"}\n{"_id": "d8"'),
    ],
    ids=["text", "id", "shorter", "longer"],
)
@pytest.mark.parametrize("form", ["jsonl", "jsonl.gz"])
def test_a_corpus_that_changes_while_it_is_read_is_noticed(tmp_path: Path, form: str, change: Any) -> None:
    def write(text: str) -> None:
        path.write_bytes(gzip.compress(text.encode()) if form.endswith("gz") else text.encode())

    path = tmp_path / f"c.{form}"
    write(lines(many(23)))
    scanned = scan(path, 5)
    write(change(lines(many(23))))
    assert ShardReader(scanned).read(0)
    with pytest.raises(CorpusError, match="was changed while"):
        ShardReader(scanned).read(1)


def test_digests_tell_rows_apart(tmp_path: Path) -> None:
    def digest(rows: list[Any]) -> str:
        path = tmp_path / "c.jsonl"
        path.write_text(lines(rows), encoding="utf-8")
        return scan(path, 10).digest

    assert len({digest([{"_id": a, "text": b}]) for a, b in (("a", "bc"), ("ab", "c"), ("a", "bd"))}) == 3


def test_duplicates_and_an_empty_corpus_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text(lines([*many(10), many(5)[4]]), encoding="utf-8")
    with pytest.raises(CorpusError, match=r"the id 'd4' occurs twice \(documents 5 and 11\)"):
        scan(path, 4)
    path.write_text("\n")
    with pytest.raises(CorpusError, match="holds no documents"):
        scan(path, 4)


def test_a_number_and_its_text_are_the_same_id(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text(lines([{"_id": 1, "text": "一"}, {"_id": "1", "text": "二"}]), encoding="utf-8")
    with pytest.raises(CorpusError, match="the id '1' occurs twice"):
        scan(path, 4)


def test_different_ids_with_equal_keys_are_no_duplicates(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Constant:
        """A digest that is the same for all ids, as one of 64 bits may be for two."""

        def __init__(self, *args: Any, **options: Any) -> None: ...

        def digest(self) -> bytes:
            return bytes(8)

    monkeypatch.setattr(hashlib, "blake2b", Constant)
    assert scan(file, 5).count == 23
