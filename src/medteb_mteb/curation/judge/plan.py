"""Planning of a judge's requests: judgements missing in the journal, in prompts of several passages."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from medteb_mteb.curation.judge.controls import ECHO, GOLD, MISGRADED_REASONS, OFF_TOPIC, with_controls
from medteb_mteb.curation.judge.prompt import render
from medteb_mteb.curation.judge.store import Request, judgement_key
from medteb_mteb.curation.llm import Order, answer_key, settings_digest, tokens_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from medteb_mteb.curation.judge.judges import Judge, Judges, LearnedJudge
    from medteb_mteb.curation.judge.material import Material, QueryGroup
    from medteb_mteb.curation.judge.store import Grade, Grades

__all__ = ["PASSAGE_TOKENS", "PROMPT_TOKENS", "Counts", "Plan", "RequestPlan", "Task"]

#: Tokens of a prompt without its texts, and of the delimiters and the key of a passage.
PROMPT_TOKENS = render("", (), request=b"", tags=True)[0].tokens[0]
PASSAGE_TOKENS = 40


@dataclass(frozen=True, slots=True)
class Task:
    """A request with what is needed to read its answer.

    Attributes:
        request: The request.
        names: Key of each passage in the prompt, control passages included.
        numbers: Number of the passage of each key of the request.
        controls: Kind of control passage by number.
        query: Id of the query.
        documents: Id of the document of each key of the request.
    """

    request: Request
    names: tuple[str, ...]
    numbers: tuple[int, ...]
    controls: dict[int, int]
    query: str
    documents: dict[bytes, str]


@dataclass
class Counts:
    """Numbers of distinct judgements.

    Attributes:
        judgements: All that are to be made.
        known: Of these, in the journal.
        failed: Of these, failed in an earlier run and not retried, by reason.
        suspicious: Of these, with a passage that is judged alone.
        asked_again: Of these, asked for again with the passage alone.
    """

    judgements: int = 0
    known: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    suspicious: int = 0
    asked_again: int = 0


class Plan:
    """The judgements that one judge is to make.

    Args:
        judge: The judge.
        judges: Settings common to all judges.
        material: Queries, documents and pools to judge.
        grades: The known judgements.
        retry_failed: Whether to ask again for everything that failed in earlier runs.
    """

    def __init__(
        self,
        judge: Judge | LearnedJudge,
        judges: Judges,
        material: Material,
        grades: Grades,
        *,
        retry_failed: bool = False,
    ) -> None:
        self.judge, self.judges, self.material, self.grades = judge, judges, material, grades
        self.retry_failed = retry_failed
        self.settings = settings_digest(judge.description())
        self.counts = Counts()

    def keys(self, query: str, documents: Sequence[str]) -> dict[bytes, str]:
        """Return the documents by the key of the judgement."""
        digest, digests = self.material.query_digests[query], self.material.document_digests
        return {judgement_key(self.settings, digest, digests[name]): name for name in documents}

    def missing(self, group: QueryGroup) -> tuple[dict[bytes, str], dict[bytes, Grade]]:
        """Return the documents of a group that have no grade yet, by key, and what is stored of them."""
        keys = self.keys(group.query, group.documents)
        stored = self.grades.get(list(keys))
        missing = {k: name for k, name in keys.items() if k not in stored or stored[k].grade is None}
        self.counts.judgements += len(keys)
        self.counts.known += len(keys) - len(missing)
        return missing, {key: stored[key] for key in missing if key in stored}


class RequestPlan(Plan):
    """The requests to an LLM; arguments as of `Plan`."""

    judge: Judge

    def orders(self) -> Iterator[Order]:
        """Yield all requests, query by query; `counts` is complete after the last one."""
        self.counts = Counts()
        for group in self.material.groups():
            planned = list(self._requests(group))
            if planned:
                self.grades.plan(self.settings, [request for request, _ in planned])
            for request, documents in planned:
                yield self.order(request, group.query, documents)

    def _requests(self, group: QueryGroup) -> Iterator[tuple[Request, dict[bytes, str]]]:
        missing, stored = self.missing(group)
        for request in self._interrupted(stored):
            yield request, {key: missing.pop(key) for key in request.keys}
        for key, grade in stored.items():
            if key in missing and grade.reason is not None:
                document = missing.pop(key)
                if self.retry_failed:
                    control = self._alone(document, grade.reason)
                    yield Request((key,), grade.attempt + 1, control), {key: document}
                else:
                    self.counts.failed[grade.reason] += 1
        # Suspicious passages are judged alone, the others in a random order specific to the judge.
        suspects = [key for key, document in missing.items() if document in self.material.suspects]
        self.counts.suspicious += len(suspects)
        for key in suspects:
            document = missing.pop(key)
            yield Request((key,), 0, self._alone(document)), {key: document}
        order = sorted(missing.items())
        digest = self.material.query_digests[group.query].hex()
        draw = random.Random(f"{self.judges.seed}\0{self.judge.name}\0{digest}")
        draw.shuffle(order)
        for batch in self._cut(group.query, order):
            controlled = len(batch) > 1 and draw.random() < self.judges.control_rate
            gold = self._gold(group.query, list(batch.values()))
            positive = GOLD if gold else ECHO if self.judges.echoes else 0
            yield Request(tuple(batch), 0, OFF_TOPIC | positive if controlled else 0), batch

    def _interrupted(self, stored: Mapping[bytes, Grade]) -> list[Request]:
        """Return the requests of an interrupted run, if all their judgements are still missing."""
        by_request: dict[bytes, list[tuple[int, bytes, Grade]]] = {}
        for key, grade in stored.items():
            if grade.planned:
                by_request.setdefault(grade.request, []).append((grade.number, key, grade))
        requests = {}
        for identity, rows in by_request.items():
            rows.sort()
            requests[identity] = Request(
                tuple(key for _, key, _ in rows), rows[0][2].attempt, rows[0][2].control
            )
        return [one for identity, one in requests.items() if one.id(self.settings) == identity]

    def _gold(self, query: str, documents: Sequence[str]) -> list[str]:
        """Return the gold passages for a prompt, without those that take half of its room or more."""
        room = self.judge.prompt_tokens - PROMPT_TOKENS - tokens_of(self.material.queries[query])
        known = self.material.gold_beside(query, documents)
        return [text for text in known if 2 * (tokens_of(text) + PASSAGE_TOKENS) < room]

    def _alone(self, document: str, reason: str = "") -> int:
        """Return the control passages of a passage that is judged alone.

        A gold passage is never among them: if it were mislabelled, its query would never be judged.
        """
        wanted = reason in MISGRADED_REASONS.values() or document in self.material.suspects
        return (OFF_TOPIC | (ECHO if self.judges.echoes else 0)) if wanted else 0

    def _cut(self, query: str, order: list[tuple[bytes, str]]) -> Iterator[dict[bytes, str]]:
        """Yield the passages of each prompt."""
        text = self.material.queries[query]
        fixed = PROMPT_TOKENS + tokens_of(text) + self._control_tokens(text, self._gold(query, ()))
        batch: dict[bytes, str] = {}
        size = fixed
        for key, document in order:
            tokens = tokens_of(self.material.documents[document]) + PASSAGE_TOKENS
            if batch and (len(batch) == self.judge.passages or size + tokens > self.judge.prompt_tokens):
                yield batch
                batch, size = {}, fixed
            batch[key] = document
            size += tokens
        if batch:
            yield batch

    def _control_tokens(self, query: str, gold: Sequence[str]) -> int:
        """Return the most tokens that the control passages of a prompt of several passages take."""
        if not self.judges.control_rate:
            return 0
        positive = [*gold, *(echo.replace("{query}", query) for echo in self.judges.echoes)]
        return sum(
            max(map(tokens_of, texts)) + PASSAGE_TOKENS for texts in (self.judges.controls, positive) if texts
        )

    def order(self, request: Request, query: str, documents: dict[bytes, str]) -> Order:
        """Return a request with its prompt; the same request gives the same prompt."""
        identity = request.id(self.settings)
        text = self.material.queries[query]
        shown, numbers, kinds = with_controls(
            request.control,
            identity,
            [self.material.documents[documents[key]] for key in request.keys],
            query=text,
            gold=self._gold(query, list(documents.values())),
            controls=self.judges.controls,
            echoes=self.judges.echoes,
        )
        prompt, names = render(text, shown, request=identity, tags=self.judge.tags)
        return Order(
            answer_key(self.settings, prompt),
            prompt,
            0,
            Task(request, names, numbers, kinds, query, documents),
        )

    def follow_up(self, task: Task, reasons: Mapping[bytes, str]) -> list[Order]:
        """Return requests, each for one passage, for the grades that a first answer lacks."""
        self.counts.asked_again += len(reasons)
        return [
            self.order(
                Request((key,), 1, self._alone(task.documents[key], reason)),
                task.query,
                {key: task.documents[key]},
            )
            for key, reason in reasons.items()
        ]
