"""Unreadable answers: parsing them again, and showing some of them to the user."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from medteb_mteb.curation.judge.controls import places
from medteb_mteb.curation.judge.entries import places_of
from medteb_mteb.curation.judge.prompt import passage_keys
from medteb_mteb.curation.judge.worker import verdict_of

if TYPE_CHECKING:
    from medteb_mteb.curation.judge.journal import JudgementJournal
    from medteb_mteb.curation.judge.plan import RequestPlanner
    from medteb_mteb.curation.judge.worker import JudgeWorker

__all__ = ["read_again", "shown", "why_stopped"]

#: Reasons that are not a judge's fault: the endpoint refuses the texts.
TEXT_REFUSALS = ("filtered",)
#: Number of answers shown, characters of each, and length of a match that counts as repeating a text.
MAX_SHOWN, MAX_SHOWN_CHARACTERS, MIN_REPEATED_CHARACTERS = 3, 200, 12
#: What may differ in a text that is repeated: white space, also escaped, marks and invisible characters.
_BETWEEN_LETTERS = re.compile(r"\\[nrt]|[\W_]+")


def read_again(planner: RequestPlanner, journal: JudgementJournal) -> int:
    """Parse a judge's stored unreadable answers again, with the current reader.

    Returns:
        Number of grades recovered, which need not be bought again.
    """
    recovered = 0
    for request, ending, text in journal.unread(planner.settings):
        identity = request.id(planner.settings)
        numbers, kinds = places(request, identity)
        keys = passage_keys(len(numbers) + len(kinds), request=identity, tags=planner.judge.tags)
        verdict = verdict_of(text, keys, kinds, ending)
        known = journal.grades(list(request.keys))
        pairs = zip(request.keys, numbers, strict=True)
        grades = {k: verdict.grades[n] for k, n in pairs if n in verdict.grades and k not in known}
        if grades or len(known) == len(request.keys):
            journal.reread(planner.settings, request, grades, places_of(request, numbers))
            recovered += len(grades)
    return recovered


def why_stopped(worker: JudgeWorker) -> str:
    """Return why a judge stops the step, with its first answers if they are the reason.

    Empty if it does not: all its requests were sent, and at most `max_failed` of them failed.
    """
    planner = worker.planner
    if worker.useless:
        return f"{worker.stopped}.{shown(planner, worker.journal)} Fix the cause"
    if worker.stopped:
        return worker.stopped
    failed = planner.counts.failed + worker.tally.failed
    failed = Counter({reason: number for reason, number in failed.items() if reason not in TEXT_REFUSALS})
    number, wanted = failed.total(), planner.counts.judgements
    if number <= planner.judge.max_failed * wanted:
        return ""
    reasons = ", ".join(f"{reason} {number}" for reason, number in failed.most_common())
    return (
        f"{number} of {wanted} judgements failed ({reasons}), and max_failed is "
        f"{planner.judge.max_failed:g}.{shown(planner, worker.journal)} Fix the cause and give "
        "--retry-failed, or raise max_failed"
    )


def shown(planner: RequestPlanner, journal: JudgementJournal) -> str:
    """Return the first unreadable answers as text; if one repeats an input text, only its length."""
    answers = [text for _, _, text in journal.unread(planner.settings)[:MAX_SHOWN]]
    if not answers:
        return ""
    material = planner.material
    texts = "\n".join(map(_letters, [*material.queries.values(), *material.documents.values()]))

    def safe(answer: str) -> str:
        excerpt = " ".join(answer.split())[:MAX_SHOWN_CHARACTERS]
        letters = _letters(excerpt)
        if any(
            letters[i : i + MIN_REPEATED_CHARACTERS] in texts
            for i in range(max(1, len(letters) - MIN_REPEATED_CHARACTERS + 1))
            if letters
        ):
            return f"({len(answer)} characters that repeat a text)"
        return repr(excerpt)

    return f" Its first answers of that kind: {'; '.join(map(safe, answers))}."


def _letters(text: str) -> str:
    """Return the letters and digits of a text."""
    return _BETWEEN_LETTERS.sub("", text)
