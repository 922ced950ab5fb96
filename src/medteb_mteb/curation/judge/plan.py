"""The judgements that a judge has to make: pairs without a grade in the journal, in prompts of several texts.

The grades are a table of the journal, a row per query, passage and settings of a judge. They are written once
they are final; until then, an interrupted run plans the same prompts again and finds their answers.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, TypeVar

from medteb_mteb.curation.judge.prompt import CONTROLS, ECHOES, MISGRADED_REASONS, render, with_controls
from medteb_mteb.curation.llm.journal import settings_digest
from medteb_mteb.curation.step import SEED, tokens_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from medteb_mteb.curation.judge.judges import Judge, LearnedJudge
    from medteb_mteb.curation.judge.material import Material, QueryGroup
    from medteb_mteb.curation.llm.client import Prompt
    from medteb_mteb.curation.llm.journal import Journal

T = TypeVar("T")

#: Tokens of a prompt without its texts, and of the delimiters and the key of a passage.
PROMPT_TOKENS = render("", (), request=b"")[0].tokens[0]
PASSAGE_TOKENS = 40
#: Tokens of a negative control passage.
CONTROL_TOKENS = max(map(tokens_of, CONTROLS)) + PASSAGE_TOKENS

#: Keys of one query.
_KEYS_PER_QUERY = 500


@dataclass(frozen=True, slots=True)
class Grade:
    """A judgement.

    Attributes:
        grade: The grade.
        reason: Why there is none.
        attempt: Attempt of the request that gave it.
        place: Number of the passage in its prompt, from 1.
        shown: Number of passages in the prompt, including control passages.
        answer: Row of the answer in the journal.
        query: Digest of the query, see `mar_st.text.texts.text_digest`.
        document: Digest of the passage.
    """

    grade: str | None
    reason: str | None = None
    attempt: int = 0
    place: int | None = None
    shown: int | None = None
    answer: int | None = None
    query: bytes = b""
    document: bytes = b""


class Grades:
    """The grades of all judges in a journal, by key of the judgement."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    def get(self, keys: Sequence[bytes]) -> dict[bytes, Grade]:
        """Return the stored judgements among some keys."""
        found: dict[bytes, Grade] = {}
        for start in range(0, len(keys), _KEYS_PER_QUERY):
            part = keys[start : start + _KEYS_PER_QUERY]
            query = f"SELECT * FROM grades WHERE key IN ({', '.join('?' * len(part))})"  # noqa: S608
            found.update((key, Grade(*row)) for key, *row in self.journal.db.execute(query, part))
        return found

    def add(self, grades: Mapping[bytes, Grade]) -> None:
        """Store judgements in place of earlier ones."""
        rows = [(key, *astuple(one)) for key, one in grades.items()]
        with self.journal.transaction() as db:
            db.executemany("INSERT OR REPLACE INTO grades VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)


@dataclass(frozen=True, slots=True)
class Request:
    """A request for the grades of some passages.

    Attributes:
        query: Id of the query.
        documents: Ids of the documents by key of the judgement, in the order of the passages.
        attempt: 0 for the first request; incremented for each passage when it is requested again.
        control: Whether control passages are among them, see `medteb_mteb.curation.judge.prompt`.
    """

    query: str
    documents: dict[bytes, str]
    attempt: int = 0
    control: bool = False

    def id(self, settings: bytes) -> bytes:
        """Return 16 bytes that identify it under the given settings."""
        head = b"request %d %d " % (self.attempt, 3 * self.control)
        return hashlib.sha256(head + settings + b"".join(self.documents)).digest()[:16]


@dataclass(frozen=True, slots=True)
class Shown:
    """A prompt with what is needed to read its answer.

    Attributes:
        prompt: The prompt.
        names: Key of each passage, control passages included.
        numbers: Number of the passage of each document of the request.
        controls: Kind of control passage by number.
    """

    prompt: Prompt
    names: tuple[str, ...]
    numbers: tuple[int, ...]
    controls: dict[int, int]


class Plan:
    """The judgements that one judge is to make.

    Args:
        judge: The judge.
        material: Queries, documents and pools to judge.
        grades: The known judgements.
        control_rate: Share of the prompts with several passages that get control passages.

    Attributes:
        wanted: Number of distinct judgements.
        known: Of these, in the journal.
    """

    def __init__(
        self, judge: Judge | LearnedJudge, material: Material, grades: Grades, control_rate: float = 1.0
    ) -> None:
        self.judge, self.material, self.grades = judge, material, grades
        self.control_rate = control_rate
        self.settings = settings_digest(judge.description())
        self.wanted = self.known = 0

    def keys(self, query: str, documents: Iterable[str]) -> dict[bytes, str]:
        """Return the documents by the key (16 bytes) of the judgement."""
        head = self.settings + self.material.query_digests[query]
        digests = self.material.document_digests
        return {hashlib.sha256(head + digests[name]).digest()[:16]: name for name in documents}

    def missing(self, group: QueryGroup) -> tuple[dict[bytes, str], dict[bytes, Grade]]:
        """Return the documents of a group that have no grade yet, by key, and what is stored of them."""
        keys = self.keys(group.query, group.documents)
        stored = self.grades.get(list(keys))
        missing = {k: name for k, name in keys.items() if k not in stored or stored[k].grade is None}
        self.wanted += len(keys)
        self.known += len(keys) - len(missing)
        return missing, {key: stored[key] for key in missing if key in stored}


class RequestPlan(Plan):
    """The requests to an LLM; arguments as of `Plan`."""

    judge: Judge

    def requests(self) -> Iterator[Request]:
        """Yield the first requests, query by query; what failed in earlier runs is asked for once more."""
        for group in self.material.groups():
            missing, stored = self.missing(group)
            for key, grade in stored.items():
                document = missing.pop(key)
                yield self.alone(group.query, key, document, str(grade.reason), grade.attempt + 1)
            # Suspicious passages are judged alone, the others in a random order specific to the judge.
            for key in [key for key, name in missing.items() if name in self.material.suspects]:
                yield self.alone(group.query, key, missing.pop(key))
            order = sorted(missing.items())
            digest = self.material.query_digests[group.query].hex()
            draw = random.Random(f"{SEED}\0{self.judge.name}\0{digest}")
            draw.shuffle(order)
            for batch in self._cut(group.query, order):
                yield Request(group.query, batch, 0, len(batch) > 1 and draw.random() < self.control_rate)

    def alone(self, query: str, key: bytes, document: str, reason: str = "", attempt: int = 0) -> Request:
        """Return a request for one passage.

        It has control passages if the passage is suspected, also for the `reason` why another answer was
        rejected.
        """
        suspected = reason in MISGRADED_REASONS.values() or document in self.material.suspects
        return Request(query, {key: document}, attempt, suspected)

    def _cut(self, query: str, order: list[tuple[bytes, str]]) -> Iterator[dict[bytes, str]]:
        """Yield the passages of each prompt."""
        text = self.material.queries[query]
        echo = max(tokens_of(echo.replace("{query}", text)) for echo in ECHOES)
        fixed = PROMPT_TOKENS + tokens_of(text) + CONTROL_TOKENS + echo + PASSAGE_TOKENS
        sizes = [tokens_of(self.material.documents[name]) + PASSAGE_TOKENS for _, name in order]
        for part in cut(order, sizes, self.judge.passages, self.judge.prompt_tokens - fixed):
            yield dict(part)

    def show(self, request: Request) -> Shown:
        """Return the prompt of a request; the same request gives the same prompt."""
        identity, query = request.id(self.settings), self.material.queries[request.query]
        texts = [self.material.documents[name] for name in request.documents.values()]
        numbers, kinds = tuple(range(len(texts))), dict[int, int]()
        if request.control:
            texts, numbers, kinds = with_controls(identity, texts, query)
        prompt, names = render(query, texts, request=identity)
        return Shown(prompt, names, numbers, kinds)


def cut(items: Sequence[T], sizes: Sequence[int], most: int, room: int) -> Iterator[list[T]]:
    """Yield the items in parts of at most `most` items whose sizes fit into `room`, or of a single item."""
    part: list[T] = []
    used = 0
    for item, size in zip(items, sizes, strict=True):
        if part and (len(part) == most or used + size > room):
            yield part
            part, used = [], 0
        part.append(item)
        used += size
    if part:
        yield part
