"""Step `review`: a sample of labels for clinicians, and the comparison of their answers with the labels.

Sheets are drawn in strata, positives and negatives. Each gets a minimum, and the rest of the budget is shared
by the square root of the sizes (power allocation, M. Bankier, The American Statistician 42, 1988), so the
negatives, which are nearly all of the pairs, do not use it up. The key beside the sheet holds the label of
each row, so that shares among all labels can be estimated from shares in the sample.

Source: the validation of the benchmark, where clinicians labelled 5,000 pairs again (CARE paper).
"""

from __future__ import annotations

import csv
import io
import math
import random
import unicodedata
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
from pydantic import Field

from mar_st.data.rows import read_rows
from mar_st.errors import MarError
from mar_st.files import write_json, write_text
from mar_st.options import Argument, Switch
from medteb_mteb.curation.files.layout import guarded
from medteb_mteb.curation.files.read import read_texts
from medteb_mteb.curation.labels.agreement import fleiss_kappa
from medteb_mteb.curation.labels.grades import GRADES, POSITIVE_GRADES, read_labels
from medteb_mteb.curation.step import Counts, Estimate, Input, Step, StepSettings
from medteb_mteb.report.intervals import exact_interval

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mar_st.data.rows import Row
    from medteb_mteb.curation.files.records import Text
    from medteb_mteb.curation.labels.grades import Label

COLUMNS = ("row", "query", "document", "answer", "comment")
#: Names of the strata, by label.
STRATA = ("negative", "positive")
YES_ANSWERS, NO_ANSWERS = ("1", "yes", "y", "是"), ("0", "no", "n", "否")


class SheetPair(NamedTuple):
    """A pair of a sheet.

    Attributes:
        query_id: The query.
        document_id: The document.
        label: 1 for a positive, 0 for a negative.
    """

    query_id: str
    document_id: str
    label: int


class Sheet(NamedTuple):
    """Pairs of a sheet by row, from 1, and the number of pairs of each stratum, drawn or not."""

    rows: dict[int, SheetPair]
    pairs: dict[str, int]


def strata_of(labels: Iterable[Label]) -> dict[str, list[Label]]:
    """Return the labels by stratum, without those of discarded pairs."""
    strata: dict[str, list[Label]] = {}
    for label in labels:
        if label.relevance is not None:
            strata.setdefault(STRATA[label.relevance > 0], []).append(label)
    return {name: strata[name] for name in sorted(strata)}


def allocate(sizes: Mapping[str, int], budget: int, minimum: int) -> dict[str, int]:
    """Return the number of pairs to draw from each stratum.

    Args:
        sizes: Number of pairs of each stratum.
        budget: Number of pairs to draw in total; if there are fewer, all are drawn.
        minimum: Minimum number of pairs of each stratum; smaller strata are drawn completely.

    Raises:
        MarError: The budget is below the minimum of all strata.
    """
    numbers = {name: min(size, minimum) for name, size in sizes.items()}
    if sum(numbers.values()) > budget:
        raise MarError(
            f"{len(sizes)} strata with at least {minimum} pairs each take {sum(numbers.values())} pairs, and "
            f"the size is {budget}. Raise --size."
        )
    for _ in range(min(budget, sum(sizes.values())) - sum(numbers.values())):  # Webster's method
        left = (name for name, size in sizes.items() if numbers[name] < size)
        numbers[max(left, key=lambda name: math.sqrt(sizes[name]) / (numbers[name] + 0.5))] += 1
    return numbers


def draw(strata: Mapping[str, Sequence[Label]], numbers: Mapping[str, int], seed: int) -> Sheet:
    """Draw labels without replacement from each stratum, and shuffle them.

    Strata are drawn one by one, so a larger number elsewhere changes no other sample, and a larger sample
    of a stratum contains a smaller one.
    """
    drawn = []
    for name, labels in strata.items():
        ordered = sorted(labels, key=lambda label: (label.query_id, label.document_id))
        random.Random(f"{seed}\0{name}").shuffle(ordered)
        chosen = ordered[: numbers[name]]
        drawn += [SheetPair(one.query_id, one.document_id, STRATA.index(name)) for one in chosen]
    random.Random(seed).shuffle(drawn)
    rows = dict(enumerate(drawn, start=1))
    return Sheet(rows, {name: len(labels) for name, labels in strata.items()})


def write_sheet(path: Path, sheet: Sheet, queries: Mapping[str, Text], documents: Mapping[str, Text]) -> None:
    """Write a sheet as CSV with an empty column `answer`, and its labels to `*.key.json` beside it.

    Raises:
        MarError: A pair has no text.
    """
    rows = [
        (row, _text(queries, one.query_id), _text(documents, one.document_id), "", "")
        for row, one in sheet.rows.items()
    ]
    key = {"pairs": sheet.pairs, "rows": [{"row": row, **one._asdict()} for row, one in sheet.rows.items()]}
    write_json(path.with_name(f"{path.stem}.key.json"), key)
    _write_csv(path, COLUMNS, rows)


def _text(texts: Mapping[str, Text], name: str) -> str:
    if name not in texts:
        raise MarError(f"The labels name {name!r}, and no text has this id.")
    return texts[name].full


def _write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write rows as CSV; an apostrophe goes before anything like a formula."""
    table = io.StringIO(newline="")
    writer = csv.writer(table)
    writer.writerow(map(guarded, columns))
    writer.writerows([guarded(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
    write_text(path, f"\ufeff{table.getvalue()}")  # the mark tells spreadsheets that it is UTF-8


def read_answers(file: Path, sheet: Sheet) -> dict[int, int]:
    """Return the answers of one reviewer, 1 or 0 by row; unanswered rows are left out.

    An answer is a grade (S and A are positive), or 1 / 0, yes / no, 是 / 否.

    Args:
        file: The filled-in sheet.
        sheet: The rows of the sheet as it was written.

    Raises:
        MarError: Rows are missing, duplicated or unknown, or an answer is invalid.
    """
    seen: Counter[int] = Counter()

    def answer(row: Row) -> tuple[int, int | None]:
        number = str(row.values.get("row", ""))
        if not number.isdecimal() or int(number) not in sheet.rows or "answer" not in row.values:
            raise MarError("expected a row of the sheet with the columns row and answer.")
        seen[int(number)] += 1
        if seen[int(number)] > 1:
            raise MarError(f"row {number} occurs twice.")
        return int(number), _positive(str(row.values["answer"]))

    answers = {number: given for number, given in read_rows(file, answer) if given is not None}
    missing = len(sheet.rows) - len(seen)
    if missing:
        raise MarError(f"{file} lacks {missing} of the {len(sheet.rows)} rows; leave unanswered ones in.")
    return answers


def _positive(cell: str) -> int | None:
    answer = unicodedata.normalize("NFKC", cell).strip()  # Chinese keyboards write Ａ and １
    if not answer:
        return None
    if answer.upper() in GRADES:
        return int(answer.upper() in POSITIVE_GRADES)
    if answer.lower() not in (*YES_ANSWERS, *NO_ANSWERS):
        raise MarError(f"{answer!r} is not an answer; give one of {', '.join(GRADES)}, 1 or 0.")
    return int(answer.lower() in YES_ANSWERS)


def write_disagreements(
    out: Path,
    sheet: Sheet,
    answers: Mapping[str, Mapping[int, int]],
    queries: Mapping[str, Text],
    documents: Mapping[str, Text],
) -> int:
    """Write the pairs on which experts have no majority, with their answers.

    Args:
        out: CSV file to write.
        sheet: The rows of the sheet.
        answers: Answers of each expert, by name.
        queries: Queries by id.
        documents: Documents by id.

    Returns:
        Number of pairs.
    """
    rows = []
    for row, one in sheet.rows.items():
        votes = [by_row[row] for by_row in answers.values() if row in by_row]
        if len(votes) == len(answers) and 2 * sum(votes) == len(votes):
            texts = (_text(queries, one.query_id), _text(documents, one.document_id))
            rows.append((row, *texts, *votes))
    named = [f"answer of {name}" for name in answers]
    _write_csv(out, ("row", "query", "document", *named), rows)
    return len(rows)


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
        "kappa": fleiss_kappa(_counts(votes), weights) if len(votes) > 1 else None,
        "kappa_with_labels": fleiss_kappa(_counts(np.vstack([votes, truth])), weights),
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
