"""Worker of an LLM that writes: answers are stored, then parsed, and requested again if unusable."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from mar_st.text.values import writable
from medteb_mteb.curation.llm.account import Account
from medteb_mteb.curation.llm.database import Failure
from medteb_mteb.curation.llm.journal import Answer
from medteb_mteb.curation.llm.origins import origin_today
from medteb_mteb.curation.llm.readings import AnswerRequest
from medteb_mteb.curation.llm.worker import EndpointWorker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from medteb_mteb.curation.llm.config import LLM
    from medteb_mteb.curation.llm.journal import AnswerJournal
    from medteb_mteb.curation.llm.messages import Reply
    from medteb_mteb.curation.llm.readings import Readings

__all__ = ["Writer"]


class Writer(EndpointWorker[AnswerRequest]):
    """Asks for answers.

    Args:
        readings: Receives and parses the answers.
        orders: The requests.
        llm: The LLM.
        journal: Stores the answers.
        settings: Digest of the LLM's settings.
        description: The settings.
        done: Called when a request is finally settled, with the cost so far and the number of failures.

    Attributes:
        bought: Number of answers received.
    """

    def __init__(
        self,
        readings: Readings[Any],
        orders: Sequence[AnswerRequest],
        llm: LLM,
        journal: AnswerJournal,
        settings: bytes,
        description: Mapping[str, Any],
        done: Callable[[float, int], None],
    ) -> None:
        super().__init__(llm, journal, settings, description)
        self.readings, self.journal, self.done = readings, journal, done
        self.bought = 0
        self._failed = 0
        self._orders = iter(orders)

    def more(self) -> list[AnswerRequest]:
        """Return the next requests."""
        return list(islice(self._orders, self.llm.concurrency))

    def settle(self, job: AnswerRequest, reply: Reply | None, reason: str) -> list[AnswerRequest]:
        """Keep a valid answer; an invalid one is requested again, once."""
        if reply is not None:
            reason = self._keep(job, reply)
            self.used(reason)
            if reason and job.attempt == 0:
                return [AnswerRequest(job.key, job.words, 1)]
        if reason:
            self.journal.fail(job.key, Failure(reason, job.attempt))
            self.readings.fail(job.key, reason)
            self._failed += 1
        self.done(self.budget.spent, self._failed)
        return []

    def _keep(self, job: AnswerRequest, reply: Reply) -> str:
        """Record an answer and parse it; return why it is unusable, or an empty string."""
        ending = "refused" if reply.refused else "cut" if reply.cut else ""
        # Replaces lone surrogates, which JSON can express and UTF-8 cannot.
        text = writable(reply.content or "")
        answer = Answer(job.attempt, ending, text)
        cost = self.llm.cost(reply.tokens_in, reply.tokens_out)
        paid = Account(1, reply.tokens_in, reply.tokens_out, cost, int(reply.estimated))
        origin = origin_today(reply.model, reply.fingerprint)
        self.journal.add(self.settings, job.key, answer, llm=self.llm.name, paid=paid, origin=origin)
        self.bought += 1
        reason = self.readings.take(job.key, answer)
        if not reason:
            self.journal.accept([job.key])
        return reason
