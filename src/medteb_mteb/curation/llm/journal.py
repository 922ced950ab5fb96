"""The journal of paid answers: one SQLite table, from which nothing is ever bought again.

The database is in WAL mode with `synchronous=FULL`, so an answer survives a kill and a power cut once `put`
has returned. Rows are never changed, except that `medteb forget` erases texts. `shown` has the digests of the
texts in the prompt of an answer. `grades` has the final grades of judges, see
`medteb_mteb.curation.judge.plan`.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from filelock import FileLock, Timeout

from mar_st.errors import MarError
from mar_st.files import regular
from mar_st.text.texts import text_digest
from mar_st.text.values import writable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from medteb_mteb.curation.llm.settings import LLM

VARIABLE = "MEDTEB_ANSWERS"
#: Endings of answers that were received: as usual, cut off, or a refusal. Any other ending is the reason why
#: there is no answer, such as `filtered`; the text is then the endpoint's message.
ENDINGS = ("", "cut", "refused")

_TABLES = """
CREATE TABLE IF NOT EXISTS answers (
    id INTEGER PRIMARY KEY, key BLOB NOT NULL, attempt INTEGER NOT NULL, llm TEXT NOT NULL,
    ending TEXT NOT NULL, text TEXT NOT NULL, tokens_in INTEGER NOT NULL, tokens_out INTEGER NOT NULL,
    estimated INTEGER NOT NULL, cost REAL NOT NULL, model TEXT NOT NULL,
    day TEXT NOT NULL DEFAULT CURRENT_DATE, UNIQUE (key, attempt));
CREATE INDEX IF NOT EXISTS answers_by_llm ON answers (llm, tokens_in, tokens_out, estimated, cost);
CREATE TABLE IF NOT EXISTS shown (text BLOB, answer INTEGER, PRIMARY KEY (text, answer)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS grades (
    key BLOB PRIMARY KEY, grade TEXT, reason TEXT, attempt INTEGER, place INTEGER, shown INTEGER,
    answer INTEGER, query BLOB NOT NULL, document BLOB NOT NULL) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of an endpoint, or the reason why there is none.

    Attributes:
        text: Text of the answer, unchanged.
        ending: See `ENDINGS`.
        tokens_in: Tokens of the prompt.
        tokens_out: Tokens of the answer.
        estimated: Whether the tokens are estimated, since the endpoint did not count them.
        model: Model that answered, according to the endpoint; empty if it names none.
        id: Row in the journal.
    """

    text: str
    ending: str = ""
    tokens_in: int = 0
    tokens_out: int = 0
    estimated: bool = False
    model: str = ""
    id: int = 0

    @property
    def received(self) -> bool:
        """Return True if there is an answer."""
        return self.ending in ENDINGS


@dataclass(frozen=True, slots=True)
class Account:
    """Number of answers of an LLM, their tokens, and their cost at the prices of their days."""

    answers: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float = 0.0
    estimated: int = 0


class Journal:
    """The journal; use it as a context manager.

    Args:
        path: The database; created if it is missing, and locked for this process.

    Raises:
        MarError: Another process uses the journal, or it is no SQLite database, or damaged.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = regular(Path(path))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = FileLock(f"{self.path}.lock")
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise MarError(
                f"Another process uses the journal {self.path}. Wait for it to end, or set {VARIABLE}."
            ) from None
        try:
            self.db = sqlite3.connect(self.path, isolation_level=None)
            self.db.execute("PRAGMA journal_mode=WAL")
            self.db.execute("PRAGMA synchronous=FULL")
            self.db.executescript(_TABLES)
        except sqlite3.Error as error:
            self._lock.release()
            raise self._failed(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.db.close()
        self._lock.release()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Provide the database for writing: all of it is written, or nothing.

        Raises:
            MarError: It cannot be written.
        """
        try:
            self.db.execute("BEGIN IMMEDIATE")
            try:
                yield self.db
            except BaseException:
                self.db.execute("ROLLBACK")
                raise
            self.db.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def get(self, key: bytes, attempt: int) -> Answer | None:
        """Return a stored answer; `None` if there is none."""
        row = self.db.execute(
            "SELECT text, ending, tokens_in, tokens_out, estimated, model, id FROM answers "
            "WHERE key = ? AND attempt = ?",
            (key, attempt),
        ).fetchone()
        return None if row is None else Answer(*row)

    def put(self, key: bytes, attempt: int, llm: LLM, answer: Answer, texts: Collection[str] = ()) -> Answer:
        """Store an answer that has just arrived, inside a transaction, and return it as stored.

        Args:
            key: Key of the answer.
            attempt: Number of the request, from 0.
            llm: The LLM that answered.
            answer: The answer.
            texts: The texts in its prompt, whose digests are stored.
        """
        # Lone surrogates, which JSON can express and UTF-8 cannot, are replaced.
        text, model = writable(answer.text), writable(answer.model)[:200]
        cost = llm.cost(answer.tokens_in, answer.tokens_out)
        tokens = (answer.tokens_in, answer.tokens_out, int(answer.estimated), cost)
        row = (key, attempt, llm.name, answer.ending, text, *tokens, model)
        cursor = self.db.execute(
            "INSERT INTO answers (key, attempt, llm, ending, text, tokens_in, tokens_out, estimated, cost, "
            "model) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            row,
        )
        identity = int(cursor.lastrowid or 0)
        self.db.executemany(
            "INSERT OR IGNORE INTO shown VALUES (?, ?)", [(text_digest(one), identity) for one in texts]
        )
        return replace(answer, text=text, id=identity)

    def account(self, llm: str) -> Account:
        """Return what an LLM was paid, over all runs."""
        return Account(
            *self.db.execute(
                "SELECT count(*), coalesce(sum(tokens_in), 0), coalesce(sum(tokens_out), 0), "
                "coalesce(sum(cost), 0.0), coalesce(sum(estimated), 0) FROM answers "
                "WHERE llm = ? AND tokens_in > 0",
                (llm,),
            ).fetchone()
        )

    def origins(self, ids: Mapping[int, int], what: str) -> list[dict[str, object]]:
        """Return which models answered on which days, in the form of `provenance.json`.

        Args:
            ids: Number of items by the row of their answer.
            what: Name of the items.
        """
        counts: Counter[tuple[str, str]] = Counter()
        for row, number in ids.items():
            counts[self.db.execute("SELECT day, model FROM answers WHERE id = ?", (row,)).fetchone()] += (
                number
            )
        return [
            {"date": day, **({"model": model} if model else {}), what: number}
            for (day, model), number in sorted(counts.items())
        ]

    def _failed(self, error: sqlite3.Error) -> MarError:
        advice = f"see that its disk and folder can be written, or set {VARIABLE} to another path"
        if "not a database" in str(error) or "malformed" in str(error):
            advice = "the file is damaged: restore it, or move it away to begin a new one"
        return MarError(f"The journal {self.path} cannot be used ({error}); {advice}.")


def journal_path(out: str | Path) -> Path:
    """Return the journal of paid answers: `$MEDTEB_ANSWERS`, or `answers.sqlite` beside the output folder.

    It is never inside the output folder, so that deleting the output does not delete paid answers.
    """
    return Path(os.environ.get(VARIABLE) or Path(out).resolve().parent / "answers.sqlite")


def settings_digest(settings: Mapping[str, Any]) -> bytes:
    """Return the digest (8 bytes) of an LLM's settings."""
    text = json.dumps(dict(settings), sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).digest()[:8]
