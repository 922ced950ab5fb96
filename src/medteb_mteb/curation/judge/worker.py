"""Requests to one judge: answers are parsed and recorded, and failed passages are requested again, once."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from medteb_mteb.curation.judge.controls import MISGRADED_REASONS, misgraded
from medteb_mteb.curation.judge.entries import JudgeAccount, places_of
from medteb_mteb.curation.judge.schema import Verdict, read_answer
from medteb_mteb.curation.llm.database import Failure
from medteb_mteb.curation.llm.origins import origin_today
from medteb_mteb.curation.llm.worker import EndpointWorker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from medteb_mteb.curation.judge.journal import JudgementJournal
    from medteb_mteb.curation.judge.plan import PlannedRequest, RequestPlanner
    from medteb_mteb.curation.llm.messages import Reply

__all__ = ["JudgeWorker", "Progress", "Tally", "ending_of", "verdict_of"]


class Progress(Protocol):
    """Callback that receives the progress."""

    def __call__(self, *, graded: int, failed: int, cost: float) -> None:
        """Receive the numbers of graded and of finally failed judgements, and the cost so far."""


@dataclass
class Tally:
    """Counts of a judge in this run.

    Attributes:
        bought: Number of grades received.
        failed: Number of judgements without a grade, by reason.
        asked_again: Number of judgements requested again, each with its passage alone.
        distrusted: Number of answers rejected as a whole, by reason; `control`: the negative control passage
            was graded as relevant to the query, `control-low`: the positive one was graded as not
            relevant.
        checked: Number of passages graded positive and shown to the judge again.
    """

    bought: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    asked_again: int = 0
    distrusted: Counter[str] = field(default_factory=Counter)
    checked: int = 0


class JudgeWorker(EndpointWorker["PlannedRequest"]):
    """Sends one judge all requests of a planner.

    Args:
        planner: The requests.
        journal: Receives the answers.
        progress: Called with the numbers of new grades and failures, and the cost.
    """

    def __init__(self, planner: RequestPlanner, journal: JudgementJournal, progress: Progress) -> None:
        super().__init__(planner.judge, journal, planner.settings, planner.description)
        self.planner, self.journal, self.progress = planner, journal, progress
        self.tally = Tally()
        self._tasks = planner.tasks()

    def more(self) -> list[PlannedRequest]:
        """Return the planner's next requests, written down in one transaction."""
        tasks = list(islice(self._tasks, self.llm.concurrency))
        if tasks:
            self.journal.decide(self.settings, [task.request for task in tasks])
        return tasks

    def settle(self, job: PlannedRequest, reply: Reply | None, reason: str) -> list[PlannedRequest]:
        """Record the grades of a reply; passages without a valid grade are requested again, once."""
        if reply is None:
            verdict = Verdict({}, dict.fromkeys(range(len(job.prompt.keys)), reason))
        else:
            verdict = verdict_of(reply.content, job.prompt.keys, job.controls, ending_of(reply))
            readable = verdict.grades or verdict.whole in MISGRADED_REASONS.values()
            self.used("" if readable else next(iter(verdict.missing.values())))
        if verdict.whole:
            self.tally.distrusted[verdict.whole] += 1
        pairs = list(zip(job.request.keys, job.numbers, strict=True))
        grades = {key: verdict.grades[number] for key, number in pairs if number in verdict.grades}
        reasons = {key: verdict.missing[number] for key, number in pairs if number not in verdict.grades}
        follow: list[PlannedRequest] = []
        failures: dict[bytes, Failure] = {}
        if job.request.attempt == 0:
            follow = self.planner.follow_up(job, reasons)
        else:
            failures = {key: Failure(why, job.request.attempt) for key, why in reasons.items()}
        paid = self._paid(job, reply, flagged=verdict.whole in MISGRADED_REASONS.values())
        self.journal.settle(
            self.settings,
            job.request,
            judge=self.llm.name,
            grades=grades,
            failures=failures,
            follow=[other.request for other in follow],
            paid=paid,
            places=places_of(job.request, job.numbers),
            unread=(ending_of(reply), reply.content or "")
            if reply is not None and reasons and self.planner.judge.keep_answers == "unread"
            else None,
            origin=None if reply is None else origin_today(reply.model, reply.fingerprint),
        )
        self.tally.bought += len(grades)
        self.tally.failed.update(failure.reason for failure in failures.values())
        self.tally.asked_again += len(follow)
        self.progress(graded=len(grades), failed=len(failures), cost=paid.cost)
        return follow

    def finish(self) -> None:
        """Discard requests of earlier runs that are no longer wanted."""
        self.journal.forget(self.settings, self.planner.stale)

    def _paid(self, task: PlannedRequest, reply: Reply | None, *, flagged: bool) -> JudgeAccount:
        if reply is None:
            return JudgeAccount()
        cost = self.llm.cost(reply.tokens_in, reply.tokens_out)
        controls = int(bool(task.controls))
        return JudgeAccount(
            1, reply.tokens_in, reply.tokens_out, cost, int(reply.estimated), controls, int(flagged)
        )


def ending_of(reply: Reply) -> str:
    """Return how an answer ends: `refused`, `cut`, or empty for a normal end."""
    return "refused" if reply.refused else "cut" if reply.cut else ""


def verdict_of(content: str | None, keys: Sequence[str], controls: Mapping[int, int], ending: str) -> Verdict:
    """Read an answer, and reject it if a control passage got an impossible grade.

    Args:
        content: The judge's answer.
        keys: Key of each passage, in their order.
        controls: Kind of control passage by number.
        ending: See `ending_of`.
    """
    verdict = read_answer(content, keys, refused=ending == "refused", cut=ending == "cut")
    reason = misgraded(verdict.grades, controls) if verdict.grades else ""
    if not reason:
        return verdict
    return Verdict({}, dict.fromkeys([*verdict.grades, *verdict.missing], reason), reason)
