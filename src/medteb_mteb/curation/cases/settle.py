"""Step `settle`: which cases are kept, and what people decide where the two agents disagree.

LiveMedBench keeps a case iff the question is clinical, the score of information and the mean score of the
claims are above one half, and no claim is contradicted; how its agents' disagreements are resolved is not
described.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from mar_st.files import counted
from mar_st.options import Argument, Switch
from medteb_mteb.curation.cases.screen import CASES, case_text, read_cases
from medteb_mteb.curation.cases.verify import NO_CATEGORY, is_fit
from medteb_mteb.curation.files.records import Text
from medteb_mteb.curation.labels.review import Sheet, SheetPair, read_answers, write_sheet
from medteb_mteb.curation.step import Counts, Input, Step, StepSettings
from medteb_mteb.curation.training.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

#: Scores of the first agent's verdicts.
SCORES = {"supported": 1.0, "neutral": 0.5, "contradicted": 0.0}
#: Mean score of the claims above which a case is kept.
MIN_ALIGNMENT = 0.5
#: Why a case is not kept yet: the agents disagree, and no majority of people has decided.
DISPUTED = "disputed"


class SettleSettings(StepSettings):
    """Options of `medteb settle`."""

    cases: Annotated[Path, Argument(), Input("cases")] = Field(
        description="Cases: the folder of 'medteb verify'."
    )
    answers: Annotated[tuple[Path, ...], Switch("--answer"), Input("file")] = Field(
        (), description="Copy of the sheet that a clinician filled in; may be repeated."
    )


def settle(settings: SettleSettings) -> Counts:
    """Keep the verified cases, and give people the advice on which the two agents disagree.

    Writes `cases.jsonl`, `dropped.jsonl` with the reasons, and `sheet.csv` with a row for each disputed piece
    of advice. Have clinicians fill in the column 'answer' of a copy each (1: the advice holds, 0: it does
    not), and run the same command with --answer for each copy; the majority decides.
    """
    cases = read_cases(settings.cases, "verify")
    disputes = [
        (case, claim)
        for case in cases
        if _outcome(case, {})[0] == DISPUTED
        for claim in case["claims"]
        if _is_disputed(claim)
    ]
    sheet = _sheet(disputes, settings.out / "sheet.csv")
    people = _majority([read_answers(path, sheet) for path in settings.answers], sheet)
    rows = Rows()
    for case in cases:
        reason, alignment = _outcome(case, people)
        if reason:
            rows.drop({"_id": case["_id"]}, reason)
        else:
            rows.add(CASES, _settled(case, alignment))
    rows.write(settings.out, CASES, "dropped")
    number = counted(rows.dropped[DISPUTED], "case")
    note = f"{number} disputed: have copies of sheet.csv filled in, see --answer."
    return Counts(
        rows.number(CASES),
        queries=sum(len(case["advice"]) for case in rows.files.get(CASES, ())),
        details={"read": len(cases), **rows.details(), "sheet": len(disputes), "decided": len(people)},
        notes=(note,) * bool(rows.dropped[DISPUTED]),
    )


def _is_disputed(claim: Mapping[str, Any]) -> bool:
    return bool((claim["verdict"] == "contradicted") != claim["refuted"])


def _outcome(case: Mapping[str, Any], people: Mapping[str, bool]) -> tuple[str, float]:
    """Return the reason why a case is not kept, empty if it is, and the mean score of its claims.

    Args:
        case: The case.
        people: Whether disputed advice holds according to people, by the id of the claim.
    """
    if not is_fit(case):
        return ("not-clinical" if case["category"] == NO_CATEGORY else "too-little-information"), 0.0
    disputed = [claim["_id"] for claim in case["claims"] if _is_disputed(claim)]
    scores = [SCORES[claim["verdict"]] for claim in case["claims"] if not _is_disputed(claim)]
    scores += [float(people.get(name, True)) for name in disputed]  # without an answer: what can be reached
    alignment = sum(scores) / len(scores)
    if 0.0 in scores:
        return "contradicted", alignment
    if alignment <= MIN_ALIGNMENT:
        return "not-supported", alignment
    return (DISPUTED if set(disputed) - people.keys() else ""), alignment


def _sheet(disputes: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]], path: Path) -> Sheet:
    """Write the sheet of disputed advice, with the passages that the agents rely on, and return it.

    The number of a row is a digest of what it shows, so that an answer never counts for other advice.
    """
    rows: dict[int, SheetPair] = {}
    queries, documents = {}, {}
    for case, claim in disputes:
        passages = [claim[name]["text"] for name in ("passage", "counter") if name in claim]
        query, document = case_text(case), "\n\n".join(dict.fromkeys([claim["advice"], *passages]))
        row = int(hashlib.sha256(f"{claim['_id']}\0{query}\0{document}".encode()).hexdigest()[:8], 16)
        while row in rows:
            row += 1
        rows[row] = SheetPair(case["_id"], claim["_id"], int(claim["verdict"] != "contradicted"))
        queries[case["_id"]] = Text(case["_id"], query)
        documents[claim["_id"]] = Text(claim["_id"], document)
    sheet = Sheet(rows, {DISPUTED: len(rows)})
    write_sheet(path, sheet, queries, documents)
    return sheet


def _majority(answers: Sequence[Mapping[int, int]], sheet: Sheet) -> dict[str, bool]:
    """Return whether most people say that the advice holds, by the id of the claim; ties are left out."""
    decided = {}
    for row, pair in sheet.rows.items():
        votes = [by_row[row] for by_row in answers if row in by_row]
        if 2 * sum(votes) != len(votes):
            decided[pair.document_id] = 2 * sum(votes) > len(votes)
    return decided


def _settled(case: Mapping[str, Any], alignment: float) -> dict[str, Any]:
    """Return the row of a case that is kept."""
    passages = [claim["passage"] for claim in case["claims"] if claim["verdict"] == "supported"]
    reference = {one["_id"]: one for one in passages}
    kept = ("_id", "date", "language", "category", "narrative", "question", "advice")
    return {
        **{key: case[key] for key in kept},
        "alignment": round(alignment, 4),
        "reference": list(reference.values()),
    }


SETTLE = Step("settle", SettleSettings, settle, "cases", result_file=f"{CASES}.jsonl")
