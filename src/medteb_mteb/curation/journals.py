"""Verification of journals: check every paid row against its checksum, and locate damage."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mar_st.files import counted
from mar_st.integrity.verify import Verified
from medteb_mteb.curation.diversify.journal import DROPPED_BYTE, KEPT_BYTE
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.judge.entries import proof as judgement_proof
from medteb_mteb.curation.judge.journal import JudgementJournal
from medteb_mteb.curation.judge.log import NO_GRADE, read_entry
from medteb_mteb.curation.judge.repair import repair_journal
from medteb_mteb.curation.llm.database import PAGE_SIZES
from medteb_mteb.curation.llm.journal import Answer, AnswerJournal
from medteb_mteb.curation.llm.journal import proof as answer_proof
from medteb_mteb.curation.llm.salvage import repair_answers

if TYPE_CHECKING:
    from collections.abc import Callable

    from medteb_mteb.curation.llm.database import Database

__all__ = ["repair_damaged", "verify_journal"]

#: Problems that are listed one by one.
MAX_LISTED_PROBLEMS = 20

#: Bytes of the header of an SQLite database.
HEADER_BYTES = 100
_MAGIC, _APPLICATION = b"SQLite format 3\x00", slice(68, 72)
#: First bytes of a journal of decisions.
_DECISIONS = b'{"vectors":'


def verify_journal(path: str | Path) -> Verified:
    """Check a journal of judgements, answers or decisions; nothing is changed.

    Args:
        path: The file. Another process may be writing to it.

    Returns:
        The result; each problem says which row or byte is damaged.

    Raises:
        BuildError: The file does not exist, or it is not a journal.
    """
    file = Path(path)
    if not file.is_file():
        raise BuildError(f"There is no journal at {file}.")
    with file.open("rb") as stream:
        head = stream.read(HEADER_BYTES)
    if len(head) < HEADER_BYTES and (head.startswith(_MAGIC) or _MAGIC.startswith(head)):
        raise BuildError(
            f"{file} was cut to {len(head)} bytes; a journal that is a database has {HEADER_BYTES} or more. "
            "Restore it from a copy, or delete it and run its command again."
        )
    if head.startswith(_MAGIC[:8]):
        kind = _KINDS.get(int.from_bytes(head[_APPLICATION], "big"))
        if kind is None:
            raise BuildError(f"{file} is a database of another application, or of another version of medteb.")
        verified = Verified(str(file), f"journal of {kind.table}", 1, file.stat().st_size)
        _rows(file, kind, verified)
        return verified
    if head.startswith(_DECISIONS) or _DECISIONS.startswith(head):
        verified = Verified(str(file), "journal of decisions", 1, file.stat().st_size, digests=False)
        _decisions(file, verified)
        return verified
    raise BuildError(f"{file} is not a journal: it is neither an SQLite database nor a list of decisions.")


def repair_damaged(verified: Verified) -> str:
    """Repair a journal that `verify_journal` found damaged; no intact row is lost.

    A database is moved aside, and a new one gets every readable row. Everything after the last readable
    decision is cut off.

    Returns:
        A sentence about the repair.

    Raises:
        BuildError: Another process uses the journal, or the disk is full.
    """
    path = Path(verified.folder)
    if verified.kind == "journal of judgements":
        judged = repair_journal(path)
        return f"{counted(judged.judgements, 'judgement')} kept; the damaged journal is {judged.moved}"
    if verified.kind == "journal of answers":
        answered = repair_answers(path)
        return f"{counted(answered.answers, 'answer')} kept; the damaged journal is {answered.moved}"
    content = path.read_bytes()
    start, wrong = _torn(content)
    if wrong is None:
        raise BuildError(f"{path} cannot be repaired. {verified.problems[0].do}")
    with path.open("r+b") as stream:
        stream.truncate(start + wrong)
    rest = len(content) - start - wrong
    return f"{counted(wrong, 'decision')} kept; {counted(rest, 'byte')} behind them cut off"


def _rows(path: Path, kind: type[Database[Any]], verified: Verified) -> None:
    do = kind.remedy.replace("The same command with --repair", "'medteb verify --repair'")
    with path.open("rb") as stream:
        page = int.from_bytes(stream.read(18)[16:], "big")
    page = page if page in PAGE_SIZES else PAGE_SIZES[0]
    torn = path.stat().st_size % page
    if torn:
        verified.add(path, f"the last page is torn: it has {torn} of {page} bytes", do)
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as db:
            db.text_factory = lambda content: content.decode("utf-8", "replace")
            for (message,) in db.execute(f"PRAGMA integrity_check({MAX_LISTED_PROBLEMS})").fetchall():
                if message != "ok":
                    verified.add(path, " ".join(str(message).split())[:200], do)
            wrong = total = 0
            for checked in _tables(db, kind, verified, do):
                for row in db.execute(f"SELECT {checked.columns} FROM {checked.table}"):  # noqa: S608
                    count = checked.count(row)
                    total += count or 0
                    if count is None:
                        wrong += 1
                        if wrong <= MAX_LISTED_PROBLEMS:
                            verified.add(path, f"the row of {checked.name} {_hex(row[0])} was changed", do)
            if wrong > MAX_LISTED_PROBLEMS:
                verified.add(path, f"{wrong:,} rows were changed in all", do)
            verified.notes.append(counted(total, kind.table.removesuffix("s")))
    except (sqlite3.Error, UnicodeDecodeError) as error:  # SQLite quotes damaged names in its messages
        verified.add(path, f"cannot be read to its end ({error})", do)


def _tables(db: sqlite3.Connection, kind: type[Database[Any]], verified: Verified, do: str) -> list[_Checked]:
    """Return the tables to check: those of the journal's version, and any others that are there."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version not in (kind.version, *kind.earlier):
        raise BuildError(
            f"{verified.folder} was written by another version of medteb (form {version}, expected "
            f"{kind.version}); use that version."
        )
    names = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    later = [table for table in _CHECKS[kind] if table.since > version]
    for table in later:
        if table.table in names:
            found = f"its form is given as {version}, but its table {table.table} is of form {table.since}"
            verified.add(Path(verified.folder), found, do)
    return [table for table in _CHECKS[kind] if table not in later or table.table in names]


def _hex(key: Any) -> str:
    return key.hex() if isinstance(key, bytes) else repr(key)[:40]


def _entry(row: tuple[Any, ...]) -> int | None:
    number, content = row
    entry = read_entry(content)
    if entry is None or entry.number != number:
        return None
    return len(entry.grades) - entry.grades.count(NO_GRADE) if entry.answered else 0


def _judgement(row: tuple[Any, ...]) -> int | None:
    try:
        key, settings, grade, checksum = row
        return 1 if judgement_proof(key, settings, grade) == checksum else None
    except (TypeError, ValueError, AttributeError):
        return None


def _answer(row: tuple[Any, ...]) -> int | None:
    try:
        key, settings, attempt, ending, text, checksum = row
        return 1 if answer_proof(key, settings, Answer(attempt, ending, text)) == checksum else None
    except (TypeError, ValueError, AttributeError):
        return None


def _decisions(path: Path, verified: Verified) -> None:
    content = path.read_bytes()
    start, wrong = _torn(content)
    do = "'medteb verify --repair' cuts it off there, as the next run does."
    if not start:
        verified.add(path, "its first line is damaged", "Delete it: decisions are made again without cost.")
    elif wrong is not None:
        verified.add(
            path, f"byte {start + wrong} is not a decision (decision {wrong} of {len(content) - start})", do
        )
    verified.notes.append("Decisions carry no checksum: only their form was checked.")


def _torn(content: bytes) -> tuple[int, int | None]:
    """Return the offset of the first decision (0: damaged first line), and of the first invalid one."""
    line, end, decisions = content.partition(b"\n")
    try:
        header = json.loads(line)
    except (ValueError, RecursionError):
        header = None
    if not end or not isinstance(header, dict):
        return 0, None
    invalid = decisions.lstrip(bytes((KEPT_BYTE, DROPPED_BYTE)))
    return len(line) + 1, len(decisions) - len(invalid) if invalid else None


@dataclass(frozen=True)
class _Checked:
    """A table whose rows have checksums.

    Attributes:
        table: Name of the table.
        columns: Columns to read, first the key of a row.
        name: Name of the key, for messages.
        count: Returns the number of paid items in a row; None if the row was changed.
        since: First version of the journal with this table.
    """

    table: str
    columns: str
    name: str
    count: Callable[[tuple[Any, ...]], int | None]
    since: int = 1


#: Kinds of databases by SQLite's application id, and their tables.
_KINDS: dict[int, type[Database[Any]]] = {
    kind.application: kind for kind in (JudgementJournal, AnswerJournal)
}
_CHECKS: dict[type[Database[Any]], tuple[_Checked, ...]] = {
    JudgementJournal: (
        _Checked("judgements", "key, settings, grade, proof", "key", _judgement),
        _Checked("log", "number, entry", "request", _entry, since=2),
    ),
    AnswerJournal: (_Checked("answers", "key, settings, attempt, ending, answer, proof", "key", _answer),),
}
