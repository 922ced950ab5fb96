"""A judge that is a cross-encoder: grades without an LLM, a network or a price."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from mar_st.errors import MarError
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.judge.config import LearnedJudge
from medteb_mteb.curation.judge.entries import JudgeAccount, Request
from medteb_mteb.curation.judge.grader import open_grader
from medteb_mteb.curation.judge.plan import PlannedJudgements
from medteb_mteb.curation.judge.worker import Tally
from medteb_mteb.curation.labels.grades import GRADES
from medteb_mteb.curation.llm.limits import Stop
from medteb_mteb.curation.llm.origins import origin_today

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from medteb_mteb.curation.judge.journal import JudgementJournal
    from medteb_mteb.curation.judge.worker import Progress

__all__ = ["LearnedPlanner", "LearnedWorker"]

#: Pairs that are graded between two writes to the journal.
PAIRS_PER_WRITE = 512


class LearnedPlanner(PlannedJudgements[LearnedJudge]):
    """The pairs for a learned judge."""

    def missing(self) -> Iterator[tuple[bytes, str, str]]:
        """Yield key, query and document of each judgement that the journal lacks."""
        for group in self.material.groups():
            keys = {self.key(group.query, document): document for document in group.documents}
            known = self.journal.grades(list(keys))
            for key, document in keys.items():
                if key not in known:
                    yield key, self.material.queries[group.query], self.material.documents[document]


class LearnedWorker:
    """Grades all pairs of a planner.

    Args:
        planner: Pairs to grade.
        journal: Receives the grades.
        progress: Called with the numbers of new grades.
    """

    def __init__(self, planner: LearnedPlanner, journal: JudgementJournal, progress: Progress) -> None:
        self.llm, self.planner, self.journal, self.progress = planner.judge, planner, journal, progress
        self.tally, self.stop, self.stopped = Tally(), Stop(), ""
        self.faults: dict[str, int] = {}
        self._grader = open_grader(planner.judge)

    async def run(self) -> None:
        """Grade until there is nothing left, or until it is stopped.

        Raises:
            BuildError: The cross-encoder cannot be loaded, or does not return one score per pair.
            JournalError: Grades could not be stored.
        """
        planner, journal = self.planner, self.journal
        journal.describe(planner.settings, planner.description)
        planner.counts = planner.survey()
        missing = list(planner.missing())
        for start in range(0, len(missing), PAIRS_PER_WRITE):
            if self.stop.reason:
                break
            chunk = missing[start : start + PAIRS_PER_WRITE]
            grades = await asyncio.to_thread(self._grades, [(query, text) for _, query, text in chunk])
            graded = {key: grade for (key, _, _), grade in zip(chunk, grades, strict=True)}
            journal.settle(
                planner.settings,
                Request(tuple(graded)),
                judge=planner.judge.name,
                grades=graded,
                failures={},
                follow=[],
                paid=JudgeAccount(),
                origin=origin_today(),
            )
            self.tally.bought += len(graded)
            self.progress(graded=len(graded), failed=0, cost=0.0)
        self.stopped = self.stop.reason

    def _grades(self, pairs: Sequence[tuple[str, str]]) -> list[str]:
        best = len(GRADES) - 1
        try:
            return [GRADES[best - int(label)] for label in self._grader.label(pairs)]
        except MarError as error:
            raise BuildError(f"Judge {self.llm.name}: {error}") from error
