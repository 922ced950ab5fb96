"""Step `review`: a sample of labels for clinicians, and the comparison of their answers with the labels.

Source: the validation of the benchmark, where clinicians labelled 5,000 pairs again (CARE paper).
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Field

from mar_st.errors import MarError
from mar_st.files import write_json
from mar_st.options import Argument, Switch
from medteb_mteb.curation.files.read import read_texts
from medteb_mteb.curation.labels.agreement import fleiss_kappa
from medteb_mteb.curation.labels.grades import read_labels
from medteb_mteb.curation.labels.sheet import (
    STRATA,
    Sheet,
    allocate,
    draw,
    read_answers,
    strata_of,
    write_disagreements,
    write_sheet,
)
from medteb_mteb.curation.step import Counts, Estimate, Input, Step, StepSettings
from medteb_mteb.report.intervals import exact_interval

if TYPE_CHECKING:
    from collections.abc import Mapping


#: Minimum number of pairs of each stratum.
MINIMUM = 30
SEED = 42


class ReviewSettings(StepSettings):
    """Options of the step."""

    labels: Annotated[Path, Argument(), Input("labels")] = Field(
        description="Labels: the folder of 'medteb consensus'."
    )
    queries: Annotated[Path, Argument(), Input("texts")] = Field(description="Queries.")
    documents: Annotated[Path, Argument(), Input("texts")] = Field(description="Documents.")
    size: int = Field(5000, ge=1, description="Number of pairs on the sheet.")
    answers: Annotated[tuple[Path, ...], Switch("--answer"), Input("file")] = Field(
        (), description="Copy of the sheet that a clinician filled in; may be repeated."
    )


def review(settings: ReviewSettings) -> Counts:
    """Draw labels for clinicians to check, and compare their answers with the labels.

    Writes sheet.csv, without labels, and sheet.key.json, which the reviewers must not see. Have each of them
    fill in the column 'answer' of a copy (a grade, 1 or 0), and run the same command with --answer for each
    copy: it writes review.json, and disagreements.csv with the pairs on which they have no majority.
    """
    labels = read_labels(settings.labels)
    queries = {text.id: text for text in read_texts(settings.queries)}
    documents = {text.id: text for text in read_texts(settings.documents)}
    strata = strata_of(labels)
    if not strata:
        raise MarError("There are no labels to review: all pairs were discarded, or none was judged.")
    sizes = {name: len(rows) for name, rows in strata.items()}
    numbers = allocate(sizes, settings.size, MINIMUM)
    sheet = draw(strata, numbers, SEED)
    write_sheet(settings.out / "sheet.csv", sheet, queries, documents)
    details: dict[str, Any] = {"drawn": numbers}
    missing = sorted(set(STRATA) - strata.keys())
    notes = [f"there are no {name}s, so nothing will be known about them" for name in missing]
    if settings.answers:
        answers = {path.stem: read_answers(path, sheet) for path in settings.answers}
        if len(answers) < len(settings.answers):
            raise MarError("Two of the filled-in sheets have one name; name each after its reviewer.")
        report = compare(sheet, answers)
        differing = write_disagreements(
            settings.out / "disagreements.csv", sheet, answers, queries, documents
        )
        write_json(settings.out / "review.json", report)
        details |= {**report, "disagreements": differing}
    return Counts(len(sheet.rows), details=details, notes=tuple(notes))


def compare(sheet: Sheet, answers: Mapping[str, Mapping[int, int]]) -> dict[str, Any]:
    """Return the agreement of clinicians with the labels of a sheet.

    Args:
        sheet: The rows of the sheet.
        answers: 1 or 0 by row, by name of the clinician.

    Returns:
        `pairs` that all have answered and `unanswered` ones; `agreement`: share of their answers that equal
        the labels, over all labelled pairs, with its 95 % interval, from exact ones of each stratum; `kappa`
        of the clinicians among themselves (None for one) and `kappa_with_labels` with the labels as another
        rater; `by_reviewer`; `confirmed`: of the sampled positives and negatives the number, and the share
        that most clinicians confirm with its exact interval.

    Raises:
        MarError: No pair has answers of all clinicians.
    """
    rows = [row for row in sheet.rows if all(row in by_row for by_row in answers.values())]
    if not rows:
        raise MarError("No pair has answers of all reviewers. Fill in more rows of the sheets.")
    truth = np.array([sheet.rows[row].label for row in rows])
    strata = np.array([STRATA[label] for label in truth])
    votes = np.array([[by_row[row] for row in rows] for by_row in answers.values()])
    # Strata count as they do among all labels.
    weights = np.array([sheet.pairs[str(name)] / (strata == name).sum() for name in strata])
    weights /= weights.sum()
    equal, majority = (votes == truth).mean(0), votes.mean(0)
    low, high = _interval(equal, strata, weights)
    return {
        "pairs": len(rows),
        "unanswered": len(sheet.rows) - len(rows),
        "agreement": [round(float(number), 4) for number in ((equal * weights).sum(), low, high)],
        "kappa": fleiss_kappa(_counts(votes)) if len(votes) > 1 else None,
        "kappa_with_labels": fleiss_kappa(_counts(np.vstack([votes, truth]))),
        "by_reviewer": {
            name: float(((by_one == truth) * weights).sum())
            for name, by_one in zip(answers, votes, strict=True)
        },
        "confirmed": {
            "positives": _share(majority[truth == 1] > 0.5),
            "negatives": _share(majority[truth == 0] < 0.5),
        },
    }


def _share(confirmed: np.ndarray) -> dict[str, Any]:
    if not len(confirmed):
        return {"pairs": 0, "share": None}
    number, drawn = int(confirmed.sum()), len(confirmed)
    figures = (number / drawn, *exact_interval(number, drawn))
    return {"pairs": drawn, "share": [round(figure, 4) for figure in figures]}


def _interval(equal: np.ndarray, strata: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the 95 % interval of the weighted share of equal answers, from exact ones of each stratum.

    The strata's levels are set so that all intervals hold at once (Bonferroni), so it is conservative.
    """
    names = np.unique(strata)
    bounds = np.zeros(2)
    for name in names:
        drawn = strata == name
        number, right, level = int(drawn.sum()), float(equal[drawn].sum()), 1 - 0.05 / len(names)
        low = exact_interval(math.floor(right), number, level)[0]
        high = exact_interval(math.ceil(right), number, level)[1]
        bounds += weights[drawn].sum() * np.array([low, high])
    return bounds


def _counts(votes: np.ndarray) -> np.ndarray:
    positive = votes.sum(0)
    return np.stack([len(votes) - positive, positive], axis=1)


def _estimate(settings: ReviewSettings, sizes: Mapping[str, Estimate]) -> Estimate:
    return Estimate(min(settings.size, sizes["labels"].rows))


REVIEW = Step("review", ReviewSettings, review, "sheet", _estimate, result_file="sheet.csv")
