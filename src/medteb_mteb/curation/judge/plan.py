"""Planning of a judge's requests: judgements missing in the journal, in prompts of several passages."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from medteb_mteb.curation.judge.config import AnyJudge, Judge
from medteb_mteb.curation.judge.controls import MISGRADED_REASONS, with_controls
from medteb_mteb.curation.judge.entries import ECHO, GOLD, OFF_TOPIC, Request, judgement_key
from medteb_mteb.curation.judge.prompt import JudgePrompt, render
from medteb_mteb.curation.llm.budget import tokens_of
from medteb_mteb.curation.llm.database import settings_digest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from medteb_mteb.curation.judge.config import Judges
    from medteb_mteb.curation.judge.journal import JudgementJournal
    from medteb_mteb.curation.judge.material import JudgingMaterial, QueryGroup

__all__ = [
    "PASSAGE_OVERHEAD_TOKENS",
    "PROMPT_OVERHEAD_TOKENS",
    "PlannedJudgements",
    "PlannedRequest",
    "RequestPlanner",
    "control_tokens",
]

JudgeT = TypeVar("JudgeT", bound=AnyJudge, covariant=True)

#: Tokens of a prompt without its texts.
PROMPT_OVERHEAD_TOKENS = render("", (), request=b"", tags=True).tokens()[0]
#: Tokens of the delimiters and the key of a passage.
PASSAGE_OVERHEAD_TOKENS = 40


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """A request with the texts to send it.

    Attributes:
        request: The request.
        prompt: Prompt to send.
        numbers: Number of the passage of each key of the request, in the order of the keys.
        controls: Kind of control passage by number.
        query: Id of the query.
        documents: Ids of the documents, in the order of the keys.
    """

    request: Request
    prompt: JudgePrompt
    numbers: tuple[int, ...]
    controls: dict[int, int]
    query: str
    documents: tuple[str, ...]


@dataclass
class JudgementCounts:
    """Numbers of judgements, by state, that a planner has seen.

    Attributes:
        judgements: Number of distinct judgements to make.
        known: Of these, in the journal.
        failed: Of these, failed in an earlier run and not retried.
        suspicious: Of these, with a passage that is judged alone.
        resumed: Number of requests of an interrupted run that are sent again unchanged.
    """

    judgements: int = 0
    known: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    suspicious: int = 0
    resumed: int = 0

    @property
    def missing(self) -> int:
        """Return the number of judgements to request."""
        return self.judgements - self.known - self.failed.total()


def control_tokens(judges: Judges, query: str, gold: Sequence[str] = ()) -> int:
    """Return the most tokens that the control passages of a prompt of several passages take.

    Args:
        judges: The control passages and their rate.
        query: The query.
        gold: Passages that are known to answer it.
    """
    if not judges.control_rate:
        return 0
    positive = [*gold, *(echo.replace("{query}", query) for echo in judges.echoes)]
    kinds = (judges.controls, positive)
    return sum(max(map(tokens_of, texts)) + PASSAGE_OVERHEAD_TOKENS for texts in kinds if texts)


class PlannedJudgements(Generic[JudgeT]):
    """The judgements that one judge is to make.

    Args:
        judge: The judge.
        judges: Settings common to all judges.
        material: Queries, documents and pools to judge.
        journal: Journal with the known judgements.
        retry_failed: Whether to ask again for everything that failed in earlier runs.
    """

    def __init__(
        self,
        judge: JudgeT,
        judges: Judges,
        material: JudgingMaterial,
        journal: JudgementJournal,
        *,
        retry_failed: bool = False,
    ) -> None:
        self.judge, self.judges, self.material, self.journal = judge, judges, material, journal
        self.retry_failed = retry_failed
        self.description = judge.description()
        self.settings = settings_digest(self.description)
        self.counts = JudgementCounts()

    def key(self, query: str, document: str) -> bytes:
        """Return the key of a judgement."""
        digests = self.material.digests
        return judgement_key(self.settings, digests["q", query], digests["d", document])

    def survey(self) -> JudgementCounts:
        """Count the judgements to ask for, without rendering prompts."""
        counts = JudgementCounts()
        for group in self.material.groups():
            keys = [self.key(group.query, document) for document in group.documents]
            known, failed = self.journal.grades(keys), self.journal.failures(keys)
            counts.judgements += len(keys)
            counts.known += len(known)
            if not self.retry_failed:
                counts.failed.update(f.reason for key, f in failed.items() if key not in known)
        return counts


class RequestPlanner(PlannedJudgements[Judge]):
    """The requests for one LLM; arguments as of `PlannedJudgements`."""

    #: Requests of an interrupted run that are no longer wanted in this form.
    stale: list[Request]

    def tasks(self) -> Iterator[PlannedRequest]:
        """Yield all requests, query by query; `counts` is complete after the last one."""
        self.counts, self.stale = JudgementCounts(), []
        open_requests = {key: r for r in self.journal.requests(self.settings) for key in r.keys}
        for group in self.material.groups():
            yield from self._group(group, open_requests)

    def _group(self, group: QueryGroup, open_requests: dict[bytes, Request]) -> Iterator[PlannedRequest]:
        keys = {self.key(group.query, document): document for document in group.documents}
        known, failed = self.journal.grades(list(keys)), self.journal.failures(list(keys))
        self.counts.judgements += len(keys)
        self.counts.known += len(known)
        missing = {key: document for key, document in keys.items() if key not in known}
        for request in dict.fromkeys(open_requests[key] for key in missing if key in open_requests):
            if all(key in missing for key in request.keys):
                self.counts.resumed += 1
                yield self.task(request, group.query, [missing.pop(key) for key in request.keys])
            else:
                self.stale.append(request)
        again: list[tuple[bytes, str, int]] = []
        for key in [key for key in missing if key in failed]:
            document = missing.pop(key)
            if self.retry_failed:
                again.append((key, document, failed[key].attempt + 1))
            else:
                self.counts.failed[failed[key].reason] += 1
        for key, document, attempt in again:
            control = self._alone(document, failed[key].reason)
            yield self.task(Request((key,), attempt, control), group.query, [document])
        yield from self._batches(group.query, missing)

    def _batches(self, query: str, missing: dict[bytes, str]) -> Iterator[PlannedRequest]:
        """Yield suspicious passages alone, and the others in a random order specific to the judge."""
        suspects = [(key, document) for key, document in missing.items() if self.material.suspect(document)]
        self.counts.suspicious += len(suspects)
        for key, document in suspects:
            del missing[key]
            yield self.task(Request((key,), 0, self._alone(document)), query, [document])
        order = sorted(missing.items())
        draw = random.Random(
            f"{self.judges.seed}\0{self.judge.name}\0{self.material.digests['q', query].hex()}"
        )
        draw.shuffle(order)
        for batch in self._cut(query, order):
            documents = [document for _, document in batch]
            controlled = len(batch) > 1 and draw.random() < self.judges.control_rate
            control = OFF_TOPIC | self._positive(query, documents) if controlled else 0
            yield self.task(Request(tuple(key for key, _ in batch), 0, control), query, documents)

    def _positive(self, query: str, documents: Sequence[str]) -> int:
        """Return the kind of positive control passage for a prompt; 0 if it has none."""
        return GOLD if self._gold(query, documents) else ECHO if self.judges.echoes else 0

    def _gold(self, query: str, documents: Sequence[str]) -> list[str]:
        """Return the gold passages for a prompt, without those that take half of its room or more."""
        room = self.judge.prompt_tokens - PROMPT_OVERHEAD_TOKENS - tokens_of(self.material.queries[query])
        known = self.material.gold_beside(query, documents)
        return [text for text in known if 2 * (tokens_of(text) + PASSAGE_OVERHEAD_TOKENS) < room]

    def _alone(self, document: str, reason: str = "") -> int:
        """Return the control passages of a passage that is judged alone.

        A gold passage is never among them: if it were mislabelled, its query would never be judged.
        """
        wanted = reason in MISGRADED_REASONS.values() or self.material.suspect(document)
        return (OFF_TOPIC | (ECHO if self.judges.echoes else 0)) if wanted else 0

    def _cut(self, query: str, order: list[tuple[bytes, str]]) -> Iterator[list[tuple[bytes, str]]]:
        text = self.material.queries[query]
        fixed = PROMPT_OVERHEAD_TOKENS + tokens_of(text)
        fixed += control_tokens(self.judges, text, self._gold(query, ()))
        batch: list[tuple[bytes, str]] = []
        size = fixed
        for key, document in order:
            tokens = tokens_of(self.material.documents[document]) + PASSAGE_OVERHEAD_TOKENS
            if batch and (len(batch) == self.judge.passages or size + tokens > self.judge.prompt_tokens):
                yield batch
                batch, size = [], fixed
            batch.append((key, document))
            size += tokens
        if batch:
            yield batch

    def task(self, request: Request, query: str, documents: Sequence[str]) -> PlannedRequest:
        """Return the texts of a request; the same request gives the same prompt."""
        identity = request.id(self.settings)
        query_text = self.material.queries[query]
        texts, numbers, kinds = with_controls(
            request,
            identity,
            [self.material.documents[document] for document in documents],
            query=query_text,
            gold=self._gold(query, documents),
            controls=self.judges.controls,
            echoes=self.judges.echoes,
        )
        prompt = render(query_text, texts, request=identity, tags=self.judge.tags)
        return PlannedRequest(request, prompt, numbers, kinds, query, tuple(documents))

    def follow_up(self, task: PlannedRequest, reasons: Mapping[bytes, str]) -> list[PlannedRequest]:
        """Return requests, each for one passage, for the grades that a first answer lacks."""
        documents = dict(zip(task.request.keys, task.documents, strict=True))
        requests = []
        for key, reason in reasons.items():
            control = self._alone(documents[key], reason)
            requests.append(self.task(Request((key,), 1, control), task.query, [documents[key]]))
        return requests
