"""Judging of pools: every answer is stored before it is used, and every pair is graded once.

The folder of a judging, written once every pair has a grade or has failed::

    judgements.jsonl     a row per pair and judge, sorted: query-id, corpus-id, judge, grade; `suspicious` is
                         true if the passage may have instructed a judge, and `why` gives the evidence:
                         `text` (it reads like an instruction), `control` (a judge misgraded a control
                         passage when the prompt held no other passage), `raised` (a judge graded it as an
                         answer to a query that it cannot answer)
    failed.jsonl         pairs that a judge gave no grade for: query-id, corpus-id, judge, reason, and the
                         message of an endpoint that refuses the texts
    places.jsonl         position of each graded passage in its prompt: query-id, corpus-id, judge, place
                         (from 1), of (passages in the prompt, including control passages)
"""

from __future__ import annotations

import json
from collections import Counter, deque
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm.auto import tqdm

from mar_st.files import finished
from mar_st.text.texts import text_digest
from medteb_mteb.curation.judge.answers import Verdict, read_answer
from medteb_mteb.curation.judge.injection import remarks
from medteb_mteb.curation.judge.judges import Judge, LearnedJudge
from medteb_mteb.curation.judge.material import Material
from medteb_mteb.curation.judge.plan import Grade, Grades, Plan, Request, RequestPlan, Shown
from medteb_mteb.curation.judge.prompt import (
    ALLOWED_GRADES,
    CONTROL_TEXTS,
    MISGRADED_REASONS,
    OFF_TOPIC,
    prompt_version,
)
from medteb_mteb.curation.labels.grades import GRADES, POSITIVE_GRADES
from medteb_mteb.curation.llm.generate import Generation, Job, ask
from medteb_mteb.curation.llm.journal import Journal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from medteb_mteb.curation.judge.judges import Judges
    from medteb_mteb.curation.llm.client import Prompt

JUDGEMENTS_FILE, FAILED_FILE, PLACES_FILE = "judgements.jsonl", "failed.jsonl", "places.jsonl"
#: Pairs that a cross-encoder grades between two writes.
PAIRS_PER_WRITE = 512


class _Asked:
    """The requests to one judge, and the grades that its answers give.

    Attributes:
        plan: The plan of its judgements.
        requests: Requests of the next round: first all, then passages without a grade, each alone.
        grades: Final judgements by key.
        bought: Number of answers received in this run.
        distrusted: Number of answers that were rejected as a whole, by reason.
        stopped: Why the judge was stopped; empty if it was not.
        checked: Number of positives that were shown again.
    """

    def __init__(self, plan: RequestPlan) -> None:
        self.plan = plan
        self.requests = list(plan.requests())
        self.grades: dict[bytes, Grade] = {}
        self.bought = self.checked = 0
        self.distrusted: Counter[str] = Counter()
        self.stopped = ""
        self._shown: dict[str, tuple[Request, Shown]] = {}

    def job(self) -> Job[Verdict]:
        """Return the requests of the next round as prompts."""
        self._shown = {}
        return Job(
            self.plan.judge,
            self._prompts(),
            prompt_version(),
            self._read,
            again=False,
            count=len(self.requests),
        )

    def _prompts(self) -> Iterator[Prompt]:
        for request in self.requests:
            shown = self.plan.show(request)
            self._shown[shown.prompt.key] = request, shown
            yield shown.prompt

    def _read(self, prompt: Prompt, content: str) -> Verdict:
        _, shown = self._shown[prompt.key]
        return read_answer(content, shown.names, shown.controls)

    def take(self, result: Generation[Verdict]) -> None:
        """Take the answers of a round."""
        self.bought += result.bought
        self.stopped = result.stopped
        self.distrusted.update(result.failed.values())
        again: list[Request] = []
        for name, (request, shown) in self._shown.items():
            if name not in result.rows:  # the judge was stopped before
                continue
            verdict = result.answers.get(name, Verdict({}, {}))
            refused = name in result.unanswered and len(request.documents) == 1
            for (key, document), number in zip(request.documents.items(), shown.numbers, strict=True):
                grade = verdict.grades.get(number)
                reason = None if grade else result.failed.get(name) or verdict.missing[number]
                if reason and request.attempt == 0 and not refused:
                    again.append(self.plan.alone(request.query, key, document, reason, 1))
                else:
                    texts = self.plan.material
                    pair = texts.query_digests[request.query][:16], texts.document_digests[document][:16]
                    place = number + 1, len(shown.names), result.rows[name]
                    self.grades[key] = Grade(grade, reason, request.attempt, *place, *pair)
        self.requests = again

    def finish(self) -> None:
        """Store the final judgements; stop the step if too many of them have failed."""
        self.plan.grades.add(self.grades)
        failed = Counter(one.reason for one in self.grades.values() if one.reason)
        del failed["filtered"]  # not the judge's fault
        if not self.stopped and failed.total() > self.plan.judge.max_failed * self.plan.wanted:
            counts = ", ".join(f"{reason} {number}" for reason, number in failed.most_common())
            self.stopped = (
                f"{failed.total()} of {self.plan.wanted} judgements failed ({counts}), more than the share "
                "max_failed of the judge. Correct the cause, or raise max_failed"
            )


@dataclass
class _Outcome:
    """Numbers of a judge's pairs by grade and by reason, those that are left, and rows of their answers."""

    grades: dict[str, int] = field(default_factory=lambda: dict.fromkeys(GRADES, 0))
    failed: Counter[str] = field(default_factory=Counter)
    left: int = 0
    answers: Counter[int] = field(default_factory=Counter)


def grade_pools(
    material: Material, judges: Judges, folder: str | Path, journal: str | Path
) -> dict[str, Any]:
    """Have every judge grade every pair of the pools; resume where an earlier run ended.

    A judgement in the journal, from this build or any other, is never paid for again. The folder is written
    from it once nothing is left to ask for, with the same bytes however often the run was interrupted.

    Args:
        material: Queries, documents and pools.
        judges: The judges.
        folder: Folder to write.
        journal: The journal, see `medteb_mteb.curation.llm.journal_path`.

    Returns:
        Numbers of the judging: `pairs`, `complete`, `judges` and `provenance` (lists), `notes`. Only a
        complete one has written its folder.

    Raises:
        MarError: An API key is missing, a cross-encoder cannot be used, or the journal cannot be written.
        KeyboardInterrupt: After Ctrl-C, once the pending answers are stored.
    """
    for judge in judges.judges:
        judge.key()
    with Journal(journal) as opened:
        grades = Grades(opened)
        kinds = [RequestPlan if isinstance(one, Judge) else Plan for one in judges.judges]
        plans = [
            kind(one, material, grades, judges.control_rate)
            for kind, one in zip(kinds, judges.judges, strict=True)
        ]
        for plan in plans:
            if isinstance(plan.judge, LearnedJudge):
                _grade(plan, plan.judge)
        asked = _ask([plan for plan in plans if isinstance(plan, RequestPlan)], opened, "judge")
        caught: frozenset[bytes] = frozenset()
        if judges.check_positives and not any(one.stopped for one in asked):
            checked = [(one, check) for one in asked if (check := _check_of(one.plan)) is not None]
            for (one, check), again in zip(
                checked, _ask([check for _, check in checked], opened, "check"), strict=True
            ):
                one.checked, one.stopped = check.wanted, again.stopped
            caught = _raised([check for _, check in checked])
        complete = not any(one.stopped for one in asked)
        outcomes = {plan.judge.name: _Outcome() for plan in plans}
        rows = _rows(plans, opened, caught, outcomes)
        if complete:
            _write(Path(folder), rows)
        else:
            deque(rows, maxlen=0)  # they are only counted
        reports = {plan.judge.name: _report(plan, outcomes[plan.judge.name], opened) for plan in plans}
        answered = {name: opened.origins(outcome.answers, "pairs") for name, outcome in outcomes.items()}
    for one in asked:
        reports[one.plan.judge.name] |= {
            "bought": one.bought,
            "distrusted": dict(sorted(one.distrusted.items())),
            "checked": one.checked,
            **({"stopped": one.stopped} if one.stopped else {}),
        }
    by_name = sorted(judges.judges, key=lambda judge: judge.name)
    return {
        "pairs": material.pairs,
        "complete": complete,
        "judges": list(reports.values()),
        "provenance": [
            {"name": one.name, **one.description(), "answered": answered[one.name]} for one in by_name
        ],
        "notes": _notes(material, caught),
    }


def _ask(plans: Sequence[RequestPlan], journal: Journal, title: str) -> list[_Asked]:
    """Send the requests of plans, then once more, alone, each passage that got no grade."""
    asked = [_Asked(plan) for plan in plans]
    for name in (title, f"{title} again"):
        open_ones = [one for one in asked if not one.stopped]
        results = ask([one.job() for one in open_ones], journal, name=name)
        for one, result in zip(open_ones, results, strict=True):
            one.take(result)
    for one in asked:
        one.finish()
    return asked


def _grade(plan: Plan, judge: LearnedJudge) -> None:
    """Grade the pairs of a plan by a cross-encoder."""
    pairs: list[tuple[bytes, str, str]] = []
    for group in plan.material.groups():
        missing, _ = plan.missing(group)
        pairs += [(key, group.text, group.documents[name]) for key, name in missing.items()]
    grader = judge.grader()
    for start in tqdm(range(0, len(pairs), PAIRS_PER_WRITE), desc=judge.name, disable=None):
        chunk = pairs[start : start + PAIRS_PER_WRITE]
        labels = grader.label([(query, text) for _, query, text in chunk])
        plan.grades.add(
            {
                key: Grade(
                    GRADES[len(GRADES) - 1 - int(label)], query=text_digest(query), document=text_digest(text)
                )
                for (key, query, text), label in zip(chunk, labels, strict=True)
            }
        )


def _check_of(plan: RequestPlan) -> RequestPlan | None:
    """Return the requests that show a judge its positives again; `None` without any.

    An instruction that matches no pattern and affects no other passage leaves the control passages' grades
    unchanged. But it raises its passage for any query, while an honest passage is not graded as an answer to
    an unrelated one. Every text is shown once, with one of the queries, and with others as in any prompt.
    """
    material, queries = plan.material, CONTROL_TEXTS
    positives: dict[bytes, str] = {}
    for group in material.groups():
        keys = plan.keys(group.query, group.documents)
        for key, stored in plan.grades.get(list(keys)).items():
            if stored.grade in POSITIVE_GRADES:
                positives.setdefault(material.document_digests[keys[key]], keys[key])
    pools: dict[str, list[str]] = {}
    for digest, document in sorted(positives.items()):
        pools.setdefault(f"check-{digest[0] % len(queries)}", []).append(document)
    texts = {f"check-{number}": query for number, query in enumerate(queries)}
    checked = Material(
        {name: texts[name] for name in sorted(pools)},
        {document: material.documents[document] for document in positives.values()},
        dict(sorted(pools.items())),
    )
    return RequestPlan(plan.judge, checked, plan.grades, plan.control_rate) if positives else None


def _raised(checks: Iterable[Plan]) -> frozenset[bytes]:
    """Return digests of the passages that some judge took for answers to a query that they cannot answer."""
    digests: set[bytes] = set()
    for plan in checks:
        for group in plan.material.groups():
            keys = plan.keys(group.query, group.documents)
            for key, stored in plan.grades.get(list(keys)).items():
                graded = stored.grade is not None and stored.grade not in ALLOWED_GRADES[OFF_TOPIC]
                if graded or stored.reason in MISGRADED_REASONS.values():
                    digests.add(plan.material.document_digests[keys[key]])
    return frozenset(digests)


def _rows(
    plans: Sequence[Plan], journal: Journal, raised: frozenset[bytes], outcomes: dict[str, _Outcome]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows of the files, sorted, each with the name of its file, and count them in `outcomes`."""
    ordered = sorted(plans, key=lambda plan: plan.judge.name)
    material = ordered[0].material
    for query in sorted(material.pools):
        documents = sorted(material.pools[query])
        by_judge: dict[str, dict[str, Grade]] = {}
        for plan in ordered:
            keys = {name: key for name in documents for key in plan.keys(query, [name])}
            known = plan.grades.get(list(dict.fromkeys(keys.values())))
            by_judge[plan.judge.name] = {n: known[key] for n, key in keys.items() if key in known}
        for document in documents:
            judgements = {name: known.get(document) for name, known in by_judge.items()}
            reasons = {one.reason for one in judgements.values() if one is not None}
            evidence = {
                "text": document in material.suspects,
                "control": bool(reasons & set(MISGRADED_REASONS.values())),
                "raised": material.document_digests[document] in raised,
            }
            why = [name for name, holds in evidence.items() if holds]
            marks: dict[str, Any] = {"suspicious": True, "why": why} if why else {}
            for name, stored in judgements.items():
                pair = {"query-id": query, "corpus-id": document, "judge": name}
                outcome = outcomes[name]
                if stored is None:
                    outcome.left += 1
                elif stored.grade is not None:
                    outcome.grades[stored.grade] += 1
                    outcome.answers.update([stored.answer] if stored.answer else [])
                    yield JUDGEMENTS_FILE, {**pair, "grade": stored.grade, **marks}
                    if stored.place is not None:
                        yield PLACES_FILE, {**pair, "place": stored.place, "of": stored.shown}
                else:
                    outcome.failed[str(stored.reason)] += 1
                    message = _message(journal, stored)
                    yield FAILED_FILE, {**pair, "reason": stored.reason, **message, **marks}


def _message(journal: Journal, stored: Grade) -> dict[str, str]:
    """Return the message of an endpoint that gave no answer."""
    query = "SELECT text FROM answers WHERE id = ? AND ending = ?"
    row = journal.db.execute(query, (stored.answer, stored.reason)).fetchone()
    return {"message": row[0].removeprefix(": ")} if row and row[0] and stored.reason != "refused" else {}


def _write(folder: Path, rows: Iterable[tuple[str, dict[str, Any]]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as files:
        streams = {
            name: files.enter_context(
                files.enter_context(finished(folder / name)).open("w", encoding="utf-8")
            )
            for name in (JUDGEMENTS_FILE, FAILED_FILE, PLACES_FILE)
        }
        for name, row in rows:
            streams[name].write(json.dumps(row, ensure_ascii=False) + "\n")


def _report(plan: Plan, outcome: _Outcome, journal: Journal) -> dict[str, Any]:
    return {
        "judge": plan.judge.name,
        "grades": outcome.grades,
        "failed": dict(sorted(outcome.failed.items())),
        "left": outcome.left,
        "known": plan.known,
        "paid": asdict(journal.account(plan.judge.name)),
    }


def _notes(material: Material, caught: frozenset[bytes]) -> list[str]:
    """Return remarks about texts that try to instruct a judge."""
    notes = [*remarks(material.queries.values(), "queries")]
    if caught:
        notes.append(
            f"{len(caught)} passages were graded as answers to a query that they cannot answer; they are "
            "marked in judgements.jsonl, and medteb consensus takes none of them for a positive."
        )
    return notes
