"""The step `rubrics`: an LLM turns a physician's answer into criteria, which are checked.

LiveMedBench's generator asks Qwen3-4B for yes/no criteria of both polarities, with an axis and a weight from
-10 to 10; its prompts are not published, and these are ours. A second prompt finds criteria that cannot be
decided from an answer alone.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from mar_st.errors import MarError
from mar_st.options import Argument
from mar_st.text.values import TsvCell, as_number, writable
from medteb_mteb.curation.llm.client import object_schema
from medteb_mteb.curation.llm.config import added
from medteb_mteb.curation.llm.settings import PrivateSettings, WriterSettings
from medteb_mteb.curation.llm.template import template
from medteb_mteb.curation.llm.tolerant import Rejected, json_object, objects_in
from medteb_mteb.curation.rubrics.files import Case, Criterion, Rubric, language_of, read_cases
from medteb_mteb.curation.step import Counts, Estimate, Input, Step
from medteb_mteb.curation.texts.near_duplicates import jaccard, shingles
from medteb_mteb.curation.training.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from medteb_mteb.curation.llm.client import Prompt

#: The axes of LiveMedBench, as in tags.
AXES = ("accuracy", "completeness", "communication_quality", "context_awareness", "safety")
#: Points at most; for a criterion on which a life may depend.
MOST_POINTS = 10
#: Jaccard similarity of character bigrams from which two criteria of a rubric say the same.
OVERLAP = 0.6
#: Assumed characters of a case, and tokens of a criterion in an answer.
CASE_LENGTH, CRITERION_TOKENS = 1500, 70

_CRITERION = {
    "criterion": {"type": "string"},
    "axis": {"type": "string", "enum": list(AXES)},
    "points": {"type": "integer"},
}
_CRITERIA = {"criteria": {"type": "array", "items": object_schema(_CRITERION)}}
_NUMBERS = {"undecidable": {"type": "array", "items": {"type": "integer"}}}
_WRITE = template(__file__, "rubrics", schema=object_schema(_CRITERIA))
_CHECK = template(__file__, "decidable", schema=object_schema(_NUMBERS))


class RubricsSettings(WriterSettings, PrivateSettings):
    """Options of `medteb rubrics`."""

    cases: Annotated[Path, Argument(), Input("cases")] = Field(
        description="Cases, or rows with _id, question and a physician's answer."
    )
    most: int = Field(12, ge=1, le=40, description="Maximum number of criteria of a rubric.")


def rubrics(settings: RubricsSettings) -> Counts:
    """Have an LLM turn physicians' answers into criteria for other answers, and check them.

    `rubrics.jsonl` has HealthBench's form, `dropped.jsonl` the criteria that were dropped, with the reason,
    and `failed.jsonl` the cases without a usable rubric.
    """
    cases = [case for case in read_cases(settings.cases) if case.advice]
    if not cases:
        raise MarError(f"No case of {settings.cases} has the advice or answer of a physician.")
    settings.refuse_raw(settings.cases)
    prompts = [_rubrics_prompt(case, settings.most) for case in cases]
    written = settings.ask(prompts, _WRITE.version, partial(_read_criteria, settings.most), "rubrics")
    kept = {name: [one for one, reason in some if not reason] for name, some in written.answers.items()}
    checks = [_decidable_prompt(case, kept[case.id]) for case in cases if kept.get(case.id)]
    checked = settings.ask([] if written.stopped else checks, _CHECK.version, _read_undecidable, "decidable")
    details: dict[str, Any] = {"cases": len(cases)}
    paid = {"written": written.counts(), "checked": checked.counts()}
    if stopped := written.stopped or checked.stopped:
        return Counts(0, details={**details, **paid}, stopped=stopped)
    rows, axes = Rows(), Counter[str]()
    for case in cases:
        undecidable = checked.answers.get(case.id, frozenset())
        outcomes = [(one, reason) for one, reason in written.answers.get(case.id, ()) if reason]
        outcomes += [
            (one, "undecidable" if number in undecidable else "")
            for number, one in enumerate(kept.get(case.id, ()), 1)
        ]
        for one, reason in outcomes:
            if reason:
                rows.drop({"_id": case.id, "criterion": one.text}, reason)
        good = tuple(one for one, reason in outcomes if not reason)
        failed = written.failed.get(case.id) or checked.failed.get(case.id)
        if failed or not any(one.points > 0 for one in good):
            rows.add("failed", {"_id": case.id, "reason": failed or "no-positive"})
        else:
            axes.update(one.axis for one in good)
            rows.add("rubrics", Rubric(case.id, (("user", case.question),), good, case.date).to_json())
    rows.write(settings.out, "rubrics", "dropped")
    details |= {"criteria": axes.total(), "axes": dict(axes.most_common()), **rows.details()}
    return Counts(
        rows.number("rubrics"),
        details={**details, "without a rubric": rows.number("failed"), **paid},
        provenance=settings.provenance(_WRITE.version, written),
    )


def _rubrics_prompt(case: Case, most: int) -> Prompt:
    texts = {"question": case.question, "advice": case.advice}
    return _WRITE.prompt(case.id, language_of(case.question), texts, CRITERION_TOKENS * most, most=most)


def _read_criteria(most: int, prompt: Prompt, content: str) -> list[tuple[Criterion, str]]:
    """Return the criteria of an answer, each with the reason why it is not kept, or an empty one.

    Raises:
        Rejected: `no-criteria`: there is none.
    """
    del prompt
    outcomes: list[tuple[Criterion, str]] = []
    kept: list[frozenset[str]] = []
    for values in objects_in(content):
        text, given = values.get("criterion"), values.get("points")
        points = as_number(TsvCell(given) if isinstance(given, str) else given)
        if not isinstance(text, str) or not text.strip():
            continue
        axis = str(values.get("axis", "")).strip().lower().replace(" ", "_")
        grams, reason = shingles(text, 2), ""
        if points is None or points != int(points) or not 0 < abs(points) <= MOST_POINTS:
            points, reason = 0.0, "points"
        elif axis not in AXES:
            reason = "axis"
        elif any(jaccard(grams, other) >= OVERLAP for other in kept):
            reason = "overlap"
        elif len(kept) == most:
            reason = "too-many"
        else:
            kept.append(grams)
        outcomes.append((Criterion(" ".join(writable(text).split()), int(points), axis), reason))
    if not outcomes:
        raise Rejected("no-criteria")
    return outcomes


def _decidable_prompt(case: Case, criteria: Sequence[Criterion]) -> Prompt:
    lines = "\n".join(f"{number}. {one.text}" for number, one in enumerate(criteria, 1))
    texts, tokens = {"question": case.question, "criteria": lines}, 20 + 4 * len(criteria)
    return _CHECK.prompt(case.id, language_of(case.question), texts, tokens, about=(case.advice,))


def _read_undecidable(prompt: Prompt, content: str) -> frozenset[int]:
    """Return the numbers of the criteria that cannot be decided.

    Raises:
        Rejected: `no-json`, or `not-numbers`.
    """
    del prompt
    numbers = json_object(content).get("undecidable")
    if not isinstance(numbers, list) or any(as_number(one) is None for one in numbers):
        raise Rejected("not-numbers")
    return frozenset(int(one) for one in numbers)


def _estimate(settings: RubricsSettings, sizes: Mapping[str, Estimate]) -> Estimate:
    """Estimate two requests for each case, of an assumed length."""
    cases, case = sizes["cases"].rows, Case("x", "字" * CASE_LENGTH)
    criteria = [Criterion("字" * 40, 1)] * settings.most
    asked = (_rubrics_prompt(case, settings.most), _decidable_prompt(case, criteria))
    return added([settings.estimate(like, cases, cases) for like in asked], cases)


RUBRICS = Step(
    "rubrics",
    RubricsSettings,
    rubrics,
    "rubrics",
    estimate=_estimate,
    result_file="rubrics.jsonl",
    asks=True,
    version=f"{_WRITE.version} {_CHECK.version}",
)
