"""Records of damaged journals, read without SQLite from the pages of the database and its log."""

from __future__ import annotations

import random
import shutil
import sqlite3
from contextlib import ExitStack, closing

import pytest

from medteb_mteb.curation.llm import Account, repair_answers
from medteb_mteb.curation.llm.journal import UNREAD, Answer, AnswerJournal
from medteb_mteb.curation.llm.pages import file_bytes, views


@pytest.fixture
def blobs(tmp_path):
    """Writes one blob a row in pages of some size; returns the file's bytes and the bytes of its log."""

    def write(contents, size, *, log=False):
        path = tmp_path / "one.sqlite"
        path.unlink(missing_ok=True)
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute(f"PRAGMA page_size={size}")
            if log:
                db.execute("PRAGMA journal_mode=WAL")
                db.execute("PRAGMA wal_autocheckpoint=0")
            db.execute("CREATE TABLE one (content BLOB)")
            db.execute("BEGIN")
            db.executemany("INSERT INTO one VALUES (?)", [(one,) for one in contents])
            db.execute("COMMIT")
            wal = path.with_name("one.sqlite-wal")
            return path.read_bytes(), wal.read_bytes() if log else b""

    return write


def record_of(pages, data, content):
    """The record of a blob: its header, two to four bytes, and the blob."""
    head = 2 + (len(content) * 2 + 12 > 127) + (len(content) * 2 + 12 > 16383)
    record = pages.record(data, data.index(content[:16]) - head, head + len(content))
    return None if record is None else record[head:]


@pytest.mark.parametrize("size", [1024, 4096])
@pytest.mark.parametrize("log", [False, True])
def test_a_record_of_any_length_is_put_together(blobs, size, log):
    draw = random.Random(0)
    lengths = (40, *range(size - 45, size - 30), size + 500, 2 * size, 3 * size - 20, 50_000)
    contents = [draw.randbytes(length) for length in lengths]
    base, wal = blobs(contents, size, log=log)
    pages = next(one for one in views(base, wal) if one.size == size)
    data = wal if log else base
    assert [record_of(pages, data, one) == one for one in contents] == [True] * len(contents)


def test_a_record_without_its_last_page_is_none(blobs):
    content = random.Random(0).randbytes(5000)
    base, _ = blobs([content], 1024)
    assert record_of(views(base, b"")[0], base, content) == content
    assert record_of(views(base[:-1], b"")[0], base[:-1], content) is None


def test_pages_that_lead_in_a_circle_end_at_the_length_of_the_record(blobs):
    content = random.Random(0).randbytes(5000)
    base = bytearray(blobs([content], 1024)[0])
    for place in range(2048, len(base), 1024):
        base[place : place + 4] = (place // 1024 + 1).to_bytes(4, "big")  # each leads to itself
    record = record_of(views(bytes(base), b"")[0], bytes(base), content)
    assert record[:100] == content[:100]
    assert (len(record), record == content) == (5000, False)


def test_a_missing_or_empty_file_has_no_bytes(tmp_path):
    (tmp_path / "empty").touch()
    (tmp_path / "full").write_bytes(b"abc")
    with ExitStack() as stack:
        files = [file_bytes(stack, tmp_path / name) for name in ("none", "empty", "full")]
        assert [bytes(one) for one in files] == [b"", b"", b"abc"]
    assert views(b"", b"")[0].page(1) == b""


def test_answers_in_reused_pages_of_a_restarted_log_are_recovered(tmp_path, monkeypatch):
    monkeypatch.setattr("medteb_mteb.curation.llm.database.SYNC_SECONDS", 600)
    path, copy = tmp_path / "answers.sqlite", tmp_path / "copy.sqlite"
    with AnswerJournal(path) as journal:
        keys = [number.to_bytes(16, "big") for number in range(3000)]
        journal.insert("failures", [(key, UNREAD, 0) for key in keys])
        journal.accept(keys)  # frees their pages
        with closing(sqlite3.connect(path)) as syncing:
            syncing.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        for number in range(5):
            answer = Answer(0, "", f"{number}" * 5000)
            journal.add(b"settings", keys[number], answer, llm="one", paid=Account(1, 1, 1))
        data = bytearray(path.read_bytes())
        shutil.copy(f"{path}-wal", f"{copy}-wal")
    data[:100] = bytes(100)
    copy.write_bytes(data)
    assert repair_answers(copy).answers == 5
