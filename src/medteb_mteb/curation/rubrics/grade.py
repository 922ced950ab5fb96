"""The step `grade`: which criteria of its rubric each answer meets, and the scores of the systems."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Field

from mar_st.errors import MarError
from mar_st.files import read_record, write_json, write_text
from mar_st.options import Argument, FromFile
from medteb_mteb.curation.files.layout import write_rows
from medteb_mteb.curation.llm.settings import PrivateSettings
from medteb_mteb.curation.rubrics.files import read_answers, read_rubrics
from medteb_mteb.curation.rubrics.graders import VERDICT_TOKENS, VERSION, Grader, Item, Prompted
from medteb_mteb.curation.step import Counts, Estimate, Input, Step
from medteb_mteb.report.intervals import IntervalEstimate, MeanSample, estimated
from medteb_mteb.report.page import markdown_table, with_interval

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from medteb_mteb.curation.rubrics.files import Criterion, Rubric

PER_CASE, MEAN = "clipped per case", "clipped mean"
#: Verdicts on the criteria of an answer: met, not met, or none.
Verdicts = tuple[bool | None, ...]


def ratio(verdicts: Iterable[tuple[Criterion, bool | None]]) -> float:
    """Return the points of an answer over the points that it could have; NaN if it could have none.

    Args:
        verdicts: The criteria, each with whether the answer meets it; None counts for neither sum.
    """
    judged = [(one.points, met) for one, met in verdicts if met is not None]
    reachable = sum(points for points, _ in judged if points > 0)
    return sum(points for points, met in judged if met) / reachable if reachable else float("nan")


def variants(ratios: NDArray[np.float64]) -> dict[str, IntervalEstimate]:
    """Return both scores of some cases: the score and its 95 % bootstrap interval.

    Args:
        ratios: The ratio of each case, `(cases,)`.
    """
    # To cut is monotone: the ends of the interval of the cut mean are the cut ends.
    return {
        PER_CASE: estimated(MeanSample(np.clip(ratios, 0, 1))),
        MEAN: IntervalEstimate(*(float(np.clip(number, 0, 1)) for number in estimated(MeanSample(ratios)))),
    }


def scores_of(
    rubrics: Sequence[Rubric], verdicts: Mapping[str, Mapping[str, Verdicts]]
) -> list[dict[str, Any]]:
    """Return the scores of every system: all cases, by axis, by month.

    Args:
        rubrics: The rubrics.
        verdicts: Verdicts by system and id of the rubric; an answer that is not there is missing.

    Returns:
        Rows of `system`, `by` (`axis`, `month`, or empty for all), `value` (the axis or month), `cases`
        (their number), and `[score, low, high]` of both variants over cases.
    """
    rows = []
    for system, its in verdicts.items():
        groups: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        for rubric in rubrics:
            given = its.get(rubric.id, (False,) * len(rubric.criteria))
            judged = list(zip(rubric.criteria, given, strict=True))
            groups["", ""].append(ratio(judged))
            if rubric.date:
                groups["month", rubric.date[:7]].append(groups["", ""][-1])
            for axis in sorted({one.axis for one in rubric.criteria} - {""}):
                groups["axis", axis].append(ratio(pair for pair in judged if pair[0].axis == axis))
        for (by, value), ratios in sorted(groups.items()):
            known = np.array([number for number in ratios if not np.isnan(number)])
            if len(known):
                both = {name: one.rounded() for name, one in variants(known).items()}
                rows.append({"system": system, "by": by, "value": value, "cases": len(known), **both})
    return rows


#: File of `medteb graders`.
AGREEMENT = "agreement.json"
#: Assumed tokens of a question with its answer and the prompt around them, and criteria of a rubric.
ANSWERED_TOKENS, CRITERIA, CRITERION_TOKENS = 2500, 12, 40


class GradeSettings(PrivateSettings):
    """Options of `medteb grade`."""

    rubrics: Annotated[Path, Argument(), Input("rubrics")] = Field(
        description="Rubrics, in our form, HealthBench's or LiveMedBench's."
    )
    answers: Annotated[tuple[Path, ...], Argument(), Input("answers")] = Field(
        min_length=1,
        description="Answers with _id, answer and, optionally, system; several files may be given.",
    )
    grader: Annotated[Grader, FromFile()] = Field(
        description="YAML file of the grader: an LLM, a cross_encoder for NLI, or rule: words."
    )
    agreement: Annotated[Path | None, Input("agreement")] = Field(
        None, description="Agreement of the grader with people, from medteb graders."
    )
    least: float = Field(
        0.6, ge=-1, le=1, description="Cohen's kappa with people below which a score is not shown."
    )

    def check(self) -> None:
        """Check that the key of an LLM is set."""
        if isinstance(self.grader, Prompted):
            self.grader.key()


def grade(settings: GradeSettings) -> Counts:
    """Grade answers by rubrics, and score the systems.

    `verdicts.jsonl` has the verdict on every criterion, `scores.json` and `scores.md` the scores by system,
    axis and month, `missing.jsonl` the questions without an answer, which count 0.
    """
    rubrics, answers = read_rubrics(settings.rubrics), read_answers(settings.answers)
    by_id = {rubric.id: rubric for rubric in rubrics}
    items = {
        (system, name): Item(f"{system}\0{name}", by_id[name].question, answer, by_id[name].texts)
        for system, rows in answers.items()
        for name, answer in rows.items()
        if name in by_id
    }
    if not items:
        raise MarError(f"No answer belongs to a question of {settings.rubrics}. Compare the ids.")
    kappas = _kappas(settings)
    if isinstance(settings.grader, Prompted):
        settings.refuse_raw(settings.rubrics, *settings.answers)
    graded = settings.grader.grade(list(items.values()), settings.out)
    details = {"answers": len(items), **graded.details}
    if graded.stopped:
        return Counts(0, details=details, stopped=graded.stopped)
    rows: list[dict[str, Any]] = []
    verdicts: dict[str, dict[str, Verdicts]] = {system: {} for system in answers}
    for (system, name), item in items.items():
        given = graded.verdicts[item.key]
        verdicts[system][name] = tuple(one.met for one in given)
        about = {"_id": name, "system": system}
        for one, verdict in zip(by_id[name].criteria, given, strict=True):
            rows.append({**about, "criterion": one.criterion, "points": one.points, **verdict._asdict()})
    missing = [
        {"_id": name, "system": system} for system in answers for name in by_id if (system, name) not in items
    ]
    details |= {"missing answers": len(missing), "no verdict": sum(row["met"] is None for row in rows)}
    write_rows(settings.out / "verdicts.jsonl", rows)
    write_rows(settings.out / "missing.jsonl", missing)
    scores = scores_of(rubrics, verdicts)
    for score in scores:
        if kappas is not None and (reason := _disagreement(score, kappas, settings.least)):
            del score[PER_CASE], score[MEAN]
            score["not shown"] = reason
    identity = {"name": settings.grader.name, "identity": settings.grader.identity(), **graded.provenance}
    write_json(settings.out / "scores.json", {"grader": identity, "scores": scores})
    write_text(settings.out / "scores.md", _page(scores, settings.grader.name, details))
    for score in (score for score in scores if not score["by"]):
        details[f"scores of {score['system']}"] = dict(zip((PER_CASE, MEAN), _cells(score), strict=True))
    unknown = sum(map(len, answers.values())) - len(items)
    note = f"{unknown} answers belong to no question of {settings.rubrics} and are left out."
    return Counts(len(rows), details=details, notes=(note,) * bool(unknown))


def _kappas(settings: GradeSettings) -> dict[str, float | None] | None:
    """Return the agreement of the grader with people by category; None if no file is given.

    Raises:
        MarError: The file is not one of `medteb graders`, or is about another grader.
    """
    if settings.agreement is None:
        return None
    file = settings.agreement / AGREEMENT if settings.agreement.is_dir() else settings.agreement
    content, identity = read_record(file) or {}, settings.grader.identity()
    known = content.get("graders", {})
    for name, about in known.items():
        if about["identity"] == identity:
            return {one["category"]: one["kappa"][0] for one in content["rows"] if one["grader"] == name}
    raise MarError(
        f"{file} has no agreement of {settings.grader.name} with these settings (it has "
        f"{', '.join(known) or 'no grader'}). Run 'medteb graders' with this grader."
    )


def _disagreement(score: Mapping[str, Any], kappas: Mapping[str, float | None], least: float) -> str:
    """Return why a score is not shown: the grader does not agree with people on its verdicts."""
    kappa = kappas.get(score["value"] if score["by"] == "axis" else "all")
    if kappa is None:
        return "agreement not known"
    return f"agreement {kappa:.2f} < {least:.2f}" if kappa < least else ""


def _cells(score: Mapping[str, Any]) -> list[str]:
    if "not shown" in score:
        return [f"not shown: {score['not shown']}"] * 2
    return [with_interval(value, low, high, ".3f") for value, low, high in (score[PER_CASE], score[MEAN])]


def _page(scores: Sequence[Mapping[str, Any]], grader: str, details: Mapping[str, Any]) -> str:
    """Return the scores as Markdown, a table for all cases, for each axis and for each month."""
    parts = [f"# Scores, graded by {grader}"]
    for by, title in (("", "All cases"), ("axis", "By axis"), ("month", "By month")):
        columns = ("system", *([by] if by else []), "cases", PER_CASE, MEAN)
        rows = [
            (one["system"], *([one["value"]] if by else []), f"{one['cases']:,}", *_cells(one))
            for one in scores
            if one["by"] == by
        ]
        if rows:
            parts += [f"## {title}", markdown_table([columns, *rows])]
    counts = ("answers", "missing answers", "no verdict")
    parts.append(", ".join(f"{name}: {details[name]:,}" for name in counts))
    return "\n\n".join(parts) + "\n"


def grading_estimate(grader: Grader, answers: int) -> Estimate:
    """Return the estimate of grading: one request of an assumed length for each answer, if it is an LLM."""
    if not isinstance(grader, Prompted):
        return Estimate(answers * CRITERIA)
    tokens = (ANSWERED_TOKENS + CRITERIA * CRITERION_TOKENS, CRITERIA * VERDICT_TOKENS)
    return grader.estimate(answers * CRITERIA, answers, tokens)


def _estimate(settings: GradeSettings, sizes: Mapping[str, Estimate]) -> Estimate:
    return grading_estimate(settings.grader, sizes["answers"].rows or sizes["rubrics"].rows)


GRADE = Step("grade", GradeSettings, grade, "verdicts", estimate=_estimate, asks=True, version=VERSION)
