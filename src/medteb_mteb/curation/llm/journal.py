"""The journal of answers: every paid text, stored durably before it is used.

A database (see `medteb_mteb.curation.llm.database`) that holds the unchanged answers, but no prompts and no
API keys:

    answers     digest of (settings, system, user, variant), the settings, the number of earlier requests,
                how the answer ends, the text; never changed
    failures    keys without a valid answer, with the reason; or `unread`, until the answer has been parsed
    accounts    answers, tokens and cost of each LLM
    settings    the settings behind each digest
    origins     the answering model and day; `dated` gives the origin of each key's first answer

Every row of `answers` has its own checksum, so that all undamaged rows can be recovered from a damaged file:
see `medteb_mteb.curation.llm.repair_answers`.
"""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from medteb_mteb.curation.llm.account import Account
from medteb_mteb.curation.llm.database import FAILURES_TABLE, KEY_BYTES, SETTINGS_TABLE, Database, Failure
from medteb_mteb.curation.llm.origins import write_origin

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence

    from medteb_mteb.curation.llm.origins import Origin
    from medteb_mteb.curation.llm.prompt import Prompt

__all__ = ["UNREAD", "Answer", "AnswerJournal", "answer_key", "proof"]

#: Internal reason in `failures` of an answer that has not been checked; it is never shown.
UNREAD = "unread"


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, paid for.

    Attributes:
        attempt: Number of earlier requests for the answer.
        ending: `refused`, `cut`, or empty for a normal end.
        text: Text of the answer.
    """

    attempt: int
    ending: str
    text: str


def answer_key(settings: bytes, prompt: Prompt) -> bytes:
    """Return the key of an answer, 16 bytes, from the digest of the settings and the prompt."""
    parts = (prompt.system, prompt.user, prompt.variant)
    digests = [hashlib.sha256(part.encode("utf-8", "surrogatepass")).digest() for part in parts]
    return hashlib.sha256(settings + b"".join(digests)).digest()[:KEY_BYTES]


def proof(key: bytes, settings: bytes, answer: Answer) -> bytes:
    """Return the checksum of a row of `answers`, 4 bytes."""
    content = f"{answer.attempt} {answer.ending} {answer.text}"
    return zlib.crc32(key + settings + content.encode()).to_bytes(4, "big")


class AnswerJournal(Database[Account]):
    """Journal of answers, an SQLite database; see the module's docstring."""

    application = 0x4D54414E
    version = 1
    # With row ids; without them, rows of this length would be stored in inner pages of the tree, too.
    schema = f"""
CREATE TABLE answers (key BLOB NOT NULL, settings BLOB NOT NULL, attempt INTEGER NOT NULL,
    ending TEXT NOT NULL, answer TEXT NOT NULL, proof BLOB NOT NULL, PRIMARY KEY (key, attempt));
{FAILURES_TABLE}
CREATE TABLE accounts (llm TEXT PRIMARY KEY, answers INTEGER NOT NULL, tokens_in INTEGER NOT NULL,
    tokens_out INTEGER NOT NULL, cost REAL NOT NULL, estimated INTEGER NOT NULL) WITHOUT ROWID;
{SETTINGS_TABLE}
"""
    holder = "llm"
    table = "answers"
    remedy = (
        "The same command with --repair (repair_answers of medteb_mteb.curation.llm) moves it aside and "
        "resumes with every answer that can still be read."
    )

    @property
    def unpaid(self) -> Account:
        """Return an empty account."""
        return Account()

    def answers(self, keys: Sequence[bytes]) -> dict[bytes, list[Answer]]:
        """Return the answers by key, first one first; without the keys that have none."""
        by_key: dict[bytes, list[Answer]] = {}
        columns = "key, settings, attempt, ending, answer, proof"
        for key, settings, attempt, ending, text, checksum in self._rows("answers", columns, keys):
            answer = Answer(attempt, ending, text)
            if proof(key, settings, answer) != checksum:
                raise self._damaged("an answer does not agree with its checksum")
            by_key.setdefault(key, []).append(answer)
        for key_answers in by_key.values():
            key_answers.sort(key=lambda answer: answer.attempt)
        return by_key

    def known(self, keys: Sequence[bytes]) -> set[bytes]:
        """Return the keys that have answers, valid or not."""
        return {key for (key,) in self._rows("answers", "DISTINCT key", keys)}

    def add(
        self,
        settings: bytes,
        key: bytes,
        answer: Answer,
        *,
        llm: str,
        paid: Account,
        origin: Origin | None = None,
    ) -> None:
        """Store an answer that has just arrived, before it is parsed, and its cost.

        Args:
            settings: Digest of the LLM's settings.
            key: Key of the request.
            answer: The answer.
            llm: The LLM whose account is charged.
            paid: Amount added to the account.
            origin: Source and date of the answer.
        """
        row = (key, settings, answer.attempt, answer.ending, answer.text, proof(key, settings, answer))

        def write(db: sqlite3.Connection) -> None:
            db.execute("INSERT OR IGNORE INTO answers VALUES (?, ?, ?, ?, ?, ?)", row)
            db.execute("INSERT OR REPLACE INTO failures VALUES (?, ?, ?)", (key, UNREAD, answer.attempt))
            if origin is not None:
                write_origin(db, [key], origin)
            self._book(db, llm, paid)

        self._keep(write)

    def accept(self, keys: Iterable[bytes]) -> None:
        """Record that keys have valid answers."""
        self._keep(lambda db: db.executemany("DELETE FROM failures WHERE key = ?", [(key,) for key in keys]))

    def fail(self, key: bytes, failure: Failure) -> None:
        """Record that a key has no valid answer."""
        row = (key, failure.reason, failure.attempt)
        self._keep(lambda db: db.execute("INSERT OR REPLACE INTO failures VALUES (?, ?, ?)", row))
