"""The output folder of a judging: the journal's content for the requested pairs.

::

    step.json            digests of the input, the judges and their settings
    judgements.jsonl     a row per pair and judge, sorted: query-id, corpus-id, judge, grade; `suspicious` is
                         true if the passage may have instructed a judge, and `why` gives the evidence:
                         `text` (it reads like an instruction), `control` (a judge misgraded a control
                         passage when the prompt held no other passage), `raised` (a judge graded it as an
                         answer to a query that it cannot answer)
    failed.jsonl         pairs that a judge gave no grade for: query-id, corpus-id, judge, reason
    places.jsonl         position of each graded passage in its prompt: query-id, corpus-id, judge, place
                         (from 1), of (passages in the prompt, including control passages); differs if a run
                         was interrupted, or if other builds have bought some of the grades
    provenance.json      by judge: its settings, who answered on which days, and for how many pairs; not part
                         of any digest, so that equal labels from different days have equal digests
    report.json          effort: answers, tokens, cost, control passages; differs from run to run
    manifest.json        written last: counts, digests of the first two, the steps before this one
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

from mar_st.files.writing import finished
from medteb_mteb.curation.files.folder import write_json
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.judge.controls import MISGRADED_REASONS
from medteb_mteb.curation.labels.grades import GRADES
from medteb_mteb.curation.llm.origins import answered
from medteb_mteb.editions import PROVENANCE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from medteb_mteb.curation.judge.config import AnyJudge
    from medteb_mteb.curation.judge.journal import JudgementJournal
    from medteb_mteb.curation.judge.material import JudgingMaterial
    from medteb_mteb.curation.judge.plan import PlannedJudgements
    from medteb_mteb.curation.llm.database import Failure
    from medteb_mteb.curation.llm.origins import Origin

__all__ = ["FAILED_FILE", "JUDGEMENTS_FILE", "PLACES_FILE", "Outcome", "export", "outcomes"]

JUDGEMENTS_FILE = "judgements.jsonl"
FAILED_FILE = "failed.jsonl"
PLACES_FILE = "places.jsonl"


@dataclass
class Outcome:
    """Number of pairs by a judge's grade.

    Attributes:
        grades: Number of pairs by grade, for all five grades.
        failed: Number of pairs without a grade, by reason.
        left: Number of pairs not requested yet.
        origins: Number of graded pairs by model and date of the answer; those of earlier versions have none.
    """

    grades: dict[str, int] = field(default_factory=lambda: dict.fromkeys(GRADES, 0))
    failed: Counter[str] = field(default_factory=Counter)
    left: int = 0
    origins: Counter[Origin] = field(default_factory=Counter)

    def to_json(self) -> dict[str, Any]:
        """Return the counts as stored in the manifest."""
        return {"grades": self.grades, "failed": dict(sorted(self.failed.items()))}

    def provenance(self) -> dict[str, Any]:
        """Return who gave the grades on which days, in the form of `provenance.json`."""
        undated = sum(self.grades.values()) - self.origins.total()
        return {"answered": answered(self.origins, "pairs"), **({"undated": undated} if undated else {})}


def outcomes(
    planners: Sequence[PlannedJudgements[AnyJudge]], journal: JudgementJournal
) -> dict[str, Outcome]:
    """Count the pairs of each judge in the journal."""
    by_judge = {planner.judge.name: Outcome() for planner in planners}
    for row in _rows(planners, journal):
        _count(by_judge[row["judge"]], row)
    return by_judge


@contextmanager
def _stream(path: Path) -> Iterator[TextIO]:
    with finished(path) as part, part.open("w", encoding="utf-8") as stream:
        yield stream


def export(
    folder: Path,
    planners: Sequence[PlannedJudgements[AnyJudge]],
    journal: JudgementJournal,
    raised: frozenset[bytes] = frozenset(),
) -> dict[str, Outcome]:
    """Write `judgements.jsonl`, `failed.jsonl` and `places.jsonl` (atomically), and `provenance.json`.

    Args:
        folder: Folder to write.
        planners: Requests of every judge.
        journal: Journal with their grades.
        raised: Digests of the passages that raise themselves.

    Returns:
        Content of the files, by judge.

    Raises:
        BuildError: The files cannot be written.
    """
    by_judge = {planner.judge.name: Outcome() for planner in planners}
    try:
        with ExitStack() as files:
            graded, failed, placed = (
                files.enter_context(_stream(folder / name))
                for name in (JUDGEMENTS_FILE, FAILED_FILE, PLACES_FILE)
            )
            for row in _rows(planners, journal, raised):
                place = row.pop("at", None)
                _count(by_judge[row["judge"]], row)
                stream = graded if "grade" in row else failed
                stream.write(json.dumps(row, ensure_ascii=False) + "\n")
                if place is not None:
                    content = {key: row[key] for key in ("query-id", "corpus-id", "judge")}
                    content |= {"place": place.place, "of": place.shown}
                    placed.write(json.dumps(content, ensure_ascii=False) + "\n")
    except OSError as error:
        raise BuildError(
            f"{folder} cannot be written to ({error.strerror}); every judgement is in the journal. Free "
            "disk space and run the command again."
        ) from error
    judges = {
        planner.judge.name: {"settings": planner.description, **by_judge[planner.judge.name].provenance()}
        for planner in planners
    }
    content = {"judges": dict(sorted(judges.items()))}
    write_json(folder / PROVENANCE, content)
    return by_judge


def _rows(
    planners: Sequence[PlannedJudgements[AnyJudge]],
    journal: JudgementJournal,
    raised: frozenset[bytes] = frozenset(),
) -> Iterator[dict[str, Any]]:
    """Yield rows by query, document and judge; for pairs not requested yet, without grade and reason.

    A grade's place in the prompt is in `at` and its origin in `from`, if they are known.
    """
    ordered = sorted(planners, key=lambda planner: planner.judge.name)
    pools = ordered[0].material.pools
    for query in sorted(pools):
        known = []
        for planner in ordered:
            keys = {document: planner.key(query, document) for document in pools[query]}
            wanted = list(keys.values())
            stored = (journal.grades(wanted), journal.failures(wanted), journal.places(wanted))
            known.append((planner.judge.name, keys, *stored, journal.origins(wanted)))
        for document in sorted(pools[query]):
            failed = [failures.get(keys[document]) for _, keys, _, failures, _, _ in known]
            why = _why(ordered[0].material, document, failed, raised)
            for name, keys, grades, failures, places, origins in known:
                key = keys[document]
                row: dict[str, Any] = {"query-id": query, "corpus-id": document, "judge": name}
                if key in grades:
                    place_field = {"at": places[key]} if key in places else {}
                    origin_field = {"from": origins[key]} if key in origins else {}
                    yield {**row, "grade": grades[key], **why, **place_field, **origin_field}
                elif key in failures:
                    yield {**row, "reason": failures[key].reason, **why}
                else:
                    yield row


def _why(
    material: JudgingMaterial, document: str, failed: Sequence[Failure | None], raised: frozenset[bytes]
) -> Mapping[str, Any]:
    """Return the columns of a pair whose passage may have instructed a judge; empty for other pairs."""
    evidence = {
        "text": material.suspect(document),
        "control": any(one is not None and one.reason in MISGRADED_REASONS.values() for one in failed),
        "raised": bool(raised) and material.digests["d", document] in raised,
    }
    why = [name for name, holds in evidence.items() if holds]
    return {"suspicious": True, "why": why} if why else {}


def _count(outcome: Outcome, row: dict[str, Any]) -> None:
    """Count a row, and remove its origin, which is not written with the rows."""
    origin = row.pop("from", None)
    if "grade" in row:
        outcome.grades[row["grade"]] += 1
        if origin is not None:
            outcome.origins[origin] += 1
    elif "reason" in row:
        outcome.failed[row["reason"]] += 1
    else:
        outcome.left += 1
