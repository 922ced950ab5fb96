"""Judging of pools: every answer and every grade is stored before the next is used.

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
from medteb_mteb.curation.judge.answers import read_answer
from medteb_mteb.curation.judge.controls import ALLOWED_GRADES, MISGRADED_REASONS, OFF_TOPIC
from medteb_mteb.curation.judge.injection import suspicious
from medteb_mteb.curation.judge.judges import Judge, LearnedJudge
from medteb_mteb.curation.judge.material import Material
from medteb_mteb.curation.judge.plan import Plan, RequestPlan
from medteb_mteb.curation.judge.store import Grade, Grades
from medteb_mteb.curation.labels.grades import GRADES, POSITIVE_GRADES
from medteb_mteb.curation.llm import INTERRUPTED, Asker, Journal, ask_all

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from medteb_mteb.curation.judge.judges import Judges
    from medteb_mteb.curation.llm import Answer, Order

__all__ = ["FAILED_FILE", "JUDGEMENTS_FILE", "PLACES_FILE", "grade_pools"]

JUDGEMENTS_FILE, FAILED_FILE, PLACES_FILE = "judgements.jsonl", "failed.jsonl", "places.jsonl"
#: Pairs that a cross-encoder grades between two writes.
PAIRS_PER_WRITE = 512


class _JudgeAsker(Asker):
    """Sends one judge the requests of a plan; passages without a grade are asked for again alone, once."""

    def __init__(self, plan: RequestPlan, bar: tqdm[Any]) -> None:
        super().__init__(plan.judge)
        self.plan, self.bar = plan, bar
        self.grades = 0
        self.failed: Counter[str] = Counter()
        self.distrusted: Counter[str] = Counter()

    def orders(self) -> Iterator[Order]:
        """Yield the requests of the plan."""
        known = 0
        for order in self.plan.orders():
            self.bar.update(self.plan.counts.known - known)
            known = self.plan.counts.known
            yield order

    def settle(self, order: Order, answer: Answer, *, known: bool) -> list[Order]:
        """Store the grades of an answer."""
        task = order.job
        request = task.request
        verdict = read_answer(answer, task.names, task.controls)
        if verdict.whole:
            self.distrusted[verdict.whole] += 1
        if answer.received and not known:
            self.used(verdict.whole)
        by_number = dict(zip(task.numbers, request.keys, strict=True))
        grades = {by_number[n]: grade for n, grade in verdict.grades.items() if n in by_number}
        reasons = {by_number[n]: why for n, why in verdict.missing.items() if n in by_number}
        again: list[Order] = []
        if request.attempt == 0 and (answer.received or len(request.keys) > 1):
            again, reasons = self.plan.follow_up(task, reasons), {}
        follow = [other.job.request for other in again]
        self.plan.grades.settle(
            self.plan.settings, request, task.numbers, grades, reasons, answer=answer.id, follow=follow
        )
        self.grades += len(grades)
        self.failed.update(reasons.values())
        self.bar.update(len(grades) + len(reasons))
        return again

    def finish(self) -> None:
        """Stop the step if too many judgements have failed."""
        failed = self.plan.counts.failed + self.failed
        del failed["filtered"]  # not the judge's fault
        wanted = self.plan.counts.judgements
        if not self.stopped and failed.total() > self.plan.judge.max_failed * wanted:
            reasons = ", ".join(f"{reason} {number}" for reason, number in failed.most_common())
            self.stopped = (
                f"{failed.total()} of {wanted} judgements failed ({reasons}), more than the share max_failed "
                "of the judge. Correct the cause and give --retry-failed, or raise max_failed"
            )


@dataclass
class _Outcome:
    """Numbers of a judge's pairs by grade and by reason, those that are left, and rows of their answers."""

    grades: dict[str, int] = field(default_factory=lambda: dict.fromkeys(GRADES, 0))
    failed: Counter[str] = field(default_factory=Counter)
    left: int = 0
    answers: Counter[int] = field(default_factory=Counter)


def grade_pools(
    material: Material,
    judges: Judges,
    folder: str | Path,
    journal: str | Path,
    *,
    retry_failed: bool = False,
    show_progress: bool = True,
) -> dict[str, Any]:
    """Have every judge grade every pair of the pools; resume where an earlier run ended.

    A judgement in the journal, from this build or any other, is never paid for again. The folder is written
    from it once nothing is left to ask for, with the same bytes however often the run was interrupted.

    Args:
        material: Queries, documents and pools.
        judges: The judges.
        folder: Folder to write.
        journal: The journal, see `medteb_mteb.curation.llm.journal_path`.
        retry_failed: Ask again, once, for everything that failed in earlier runs.
        show_progress: Show a progress bar.

    Returns:
        Numbers of the judging: `pairs`, `complete`, `judges` and `provenance` (lists), `notes`. Only a
        complete one has written its folder.

    Raises:
        MarError: An API key is missing, a cross-encoder cannot be used, or the journal cannot be written.
        KeyboardInterrupt: After Ctrl-C, once the pending answers are stored.
    """
    folder = Path(folder)
    for judge in judges.judges:
        judge.key()
    with Journal(journal) as opened:
        grades = Grades(opened)
        kinds = [RequestPlan if isinstance(one, Judge) else Plan for one in judges.judges]
        plans = [
            kind(one, judges, material, grades, retry_failed=retry_failed)
            for kind, one in zip(kinds, judges.judges, strict=True)
        ]
        askers = _ask(plans, opened, "judge", show_progress)
        for asker in askers:
            asker.finish()
        caught: frozenset[bytes] = frozenset()
        checked: dict[str, int] = {}
        if judges.check_positives and not any(asker.stopped for asker in askers):
            checks = [check for asker in askers if (check := _check_of(asker.plan)) is not None]
            for asker in _ask(checks, opened, "check", show_progress):
                checked[asker.llm.name] = asker.plan.counts.judgements
                next(one for one in askers if one.llm is asker.llm).stopped = asker.stopped
            caught = _raised(checks)
        if any(asker.stopped == INTERRUPTED for asker in askers):
            raise KeyboardInterrupt
        complete = not any(asker.stopped for asker in askers)
        outcomes = {plan.judge.name: _Outcome() for plan in plans}
        rows = _rows(plans, opened, caught, outcomes)
        if complete:
            _write(folder, rows)
        else:
            deque(rows, maxlen=0)  # they are only counted
        reports = {plan.judge.name: _report(plan, outcomes[plan.judge.name], opened) for plan in plans}
        answered = {name: opened.origins(outcome.answers, "pairs") for name, outcome in outcomes.items()}
    for asker in askers:
        reports[asker.llm.name] |= {
            "bought": asker.grades,
            "distrusted": dict(sorted(asker.distrusted.items())),
            "checked": checked.get(asker.llm.name, 0),
            **({"stopped": asker.stopped} if asker.stopped else {}),
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


def _ask(plans: Sequence[Plan], journal: Journal, title: str, show_progress: bool) -> list[_JudgeAsker]:
    """Have the judges make the judgements that the journal lacks; return the LLMs among them."""
    total = sum(len(group.documents) for plan in plans for group in plan.material.groups())
    with tqdm(total=total, desc=title, unit="grades", disable=not show_progress) as bar:
        for plan in plans:
            if isinstance(plan.judge, LearnedJudge):
                _grade(plan, plan.judge, bar)
        askers = [_JudgeAsker(plan, bar) for plan in plans if isinstance(plan, RequestPlan)]
        ask_all(askers, journal)
    return askers


def _grade(plan: Plan, judge: LearnedJudge, bar: tqdm[Any]) -> None:
    """Grade the pairs of a plan by a cross-encoder."""
    material, pairs = plan.material, []
    for group in material.groups():
        missing, _ = plan.missing(group)
        pairs += [(k, material.queries[group.query], material.documents[name]) for k, name in missing.items()]
    grader = judge.grader()
    for start in range(0, len(pairs), PAIRS_PER_WRITE):
        chunk = pairs[start : start + PAIRS_PER_WRITE]
        labels = grader.label([(query, text) for _, query, text in chunk])
        graded = zip(chunk, labels, strict=True)
        plan.grades.add({key: GRADES[len(GRADES) - 1 - int(label)] for (key, _, _), label in graded})
        bar.update(len(chunk))


def _check_of(plan: RequestPlan) -> RequestPlan | None:
    """Return the requests that show a judge its positives again; `None` without any.

    An instruction that matches no pattern and affects no other passage leaves the control passages' grades
    unchanged. But it raises its passage for any query, while an honest passage is not graded as an answer to
    an unrelated one. Every text is shown once, with one of the queries, and with others as in any prompt.
    """
    material, queries = plan.material, plan.judges.checks
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
        {},
    )
    check = RequestPlan(plan.judge, plan.judges, checked, plan.grades, retry_failed=plan.retry_failed)
    return check if positives else None


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
                if stored is None or stored.planned:
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
        "known": plan.counts.known,
        "suspicious": plan.counts.suspicious,
        "asked_again": plan.counts.asked_again,
        "paid": asdict(journal.account(plan.judge.name)),
    }


def _notes(material: Material, caught: frozenset[bytes]) -> list[str]:
    """Return remarks about texts that try to instruct a judge."""
    notes = []
    queries = sum(suspicious(text) for text in material.queries.values())
    if queries:
        notes.append(f"{queries} queries look as if they wanted to instruct a judge; look at their grades.")
    if caught:
        notes.append(
            f"{len(caught)} passages were graded as answers to a query that they cannot answer; they are "
            "marked in judgements.jsonl, and medteb consensus takes none of them for a positive."
        )
    return notes
