"""A sample of pairs for clinicians: written without labels, and compared with them when it is returned.

Source: the validation of the benchmark, where clinicians labelled 5,000 pairs again (CARE paper).
"""

from __future__ import annotations

import math
import random
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.labels.agreement import fleiss_kappa
from medteb_mteb.curation.labels.intervals import exact_interval
from medteb_mteb.curation.labels.sheet import (
    SheetPair,
    answered_by_all,
    check_free,
    key_of,
    read_answers,
    read_sheet,
    write_sheet,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from medteb_mteb.curation.files.records import Text
    from medteb_mteb.curation.labels.grades import Label

__all__ = ["Review", "export_review", "import_review", "key_of"]


@dataclass(frozen=True)
class Review:
    """Agreement of clinicians with a sample of labels.

    Attributes:
        pairs: Number of labelled pairs that all clinicians have answered.
        unanswered: Number of pairs left out because a clinician has not answered them.
        agreement: Share of their answers that equal the labels, over all labelled pairs: positives and
            negatives are weighted by their shares among all labels, not by those in the sample.
        low: Lower end of its 95 % interval, from exact (Clopper-Pearson) ones of each stratum.
        high: Upper end of that interval.
        kappa: Fleiss' kappa of the clinicians among themselves; `None` for one clinician.
        kappa_with_labels: The same, with the labels as an additional rater.
        by_reviewer: Agreement of each clinician.
        positives_confirmed: Share of sampled positives that most clinicians consider positive.
        negatives_confirmed: Share of sampled negatives that most clinicians consider negative.
    """

    pairs: int
    unanswered: int
    agreement: float
    low: float
    high: float
    kappa: float | None
    kappa_with_labels: float
    by_reviewer: dict[str, float]
    positives_confirmed: float | None
    negatives_confirmed: float | None

    def to_json(self) -> dict[str, Any]:
        """Return JSON-ready content."""
        return asdict(self)


def export_review(
    labels: Sequence[Label],
    queries: Mapping[str, Text],
    documents: Mapping[str, Text],
    sheet: Path,
    *,
    size: int = 5000,
    seed: int = 42,
    positives: float | None = None,
) -> int:
    """Write a CSV sheet with an empty column `answer`, and its key beside it.

    Pairs are drawn and shuffled with the seed; the sheet shows neither labels nor grades nor ids.

    Args:
        labels: Labels; discarded pairs are not drawn.
        queries: Queries by id.
        documents: Documents by id.
        sheet: File to write, `.csv`.
        size: Number of pairs to draw; if there are fewer, all.
        seed: Seed of the draw.
        positives: Share of positives in the sample; default their share among the labels.

    Returns:
        Number of pairs written.

    Raises:
        BuildError: There are no labels, an id has no text, the share is impossible, or the file exists.
    """
    check_free(sheet)
    sides = {
        1: [label for label in labels if label.relevance],
        0: [label for label in labels if label.relevance == 0],
    }
    known = len(sides[1]) + len(sides[0])
    if not known:
        raise BuildError("There are no labels to review: all pairs were discarded, or none was judged.")
    if positives is None and not sides[1]:
        raise BuildError(
            f"None of the {known} labels is positive, so a sample cannot measure precision. --positives 0 "
            "reviews only negatives."
        )
    share = len(sides[1]) / known if positives is None else positives
    if positives is None and not round(min(size, known) * share):
        raise BuildError(
            f"A sample of {min(size, known)} would contain no positives ({len(sides[1])} of {known} labels), "
            "so it cannot measure precision. Give --positives 0.5 or a larger --size; --positives 0 reviews "
            "only negatives."
        )
    if not 0 <= share <= 1:
        raise BuildError(f"The share of positives must be between 0 and 1; got {share}.")
    wanted = {1: round(min(size, known) * share)}
    wanted[0] = min(size, known) - wanted[1]
    for side, number in wanted.items():
        if number > len(sides[side]):
            raise BuildError(
                f"{number} {'positives' if side else 'negatives'} are requested, but there are only "
                f"{len(sides[side])}. Lower --size or change --positives."
            )
    rng = random.Random(seed)
    drawn = [label for side in (1, 0) for label in rng.sample(sides[side], wanted[side])]
    rng.shuffle(drawn)
    rows = [
        SheetPair(
            number,
            label.query_id,
            label.document_id,
            int(bool(label.relevance)),
            "positive" if label.relevance else "negative",
        )
        for number, label in enumerate(drawn, start=1)
    ]
    pairs = {"positive": len(sides[1]), "negative": len(sides[0])}
    write_sheet(sheet, rows, pairs, queries, documents, seed)
    return len(rows)


def import_review(sheet: Path, answered: Mapping[str, Path]) -> Review:
    """Compare the answers of clinicians with the labels.

    Disputed pairs have no label to compare with; `medteb validate` evaluates the answers to them.

    Args:
        sheet: The sheet as it was exported; its key is next to it.
        answered: Returned file of each clinician, by name.

    Raises:
        BuildError: The key is missing, rows are missing, duplicated or unknown, an answer is invalid, or no
            pair has an answer of every clinician.
    """
    key = read_sheet(sheet)
    labels = {row: one.label for row, one in key.rows.items() if one.label is not None}
    answers = {name: read_answers(file, key) for name, file in answered.items()}
    if not answers:
        raise BuildError("Give the file of at least one reviewer.")
    rows = answered_by_all(labels, answers.values())
    truth = np.array([labels[row] for row in rows])
    strata = np.array([key.rows[row].stratum for row in rows])
    votes = np.array([[by_row[row] for row in rows] for by_row in answers.values()])
    equal = (votes == truth).mean(0)
    weights = _weights(strata, key.pairs)
    low, high = _interval(equal, strata, weights)
    voters = np.vstack([votes, truth])
    majority = votes.mean(0)
    return Review(
        pairs=len(rows),
        unanswered=len(labels) - len(rows),
        agreement=float((equal * weights).sum() / weights.sum()),
        low=low,
        high=high,
        kappa=fleiss_kappa(_votes(votes)) if len(votes) > 1 else None,
        kappa_with_labels=fleiss_kappa(_votes(voters)),
        by_reviewer={
            name: float(((votes[i] == truth) * weights).sum() / weights.sum())
            for i, name in enumerate(answers)
        },
        positives_confirmed=float((majority[truth == 1] > 0.5).mean()) if truth.any() else None,
        negatives_confirmed=float((majority[truth == 0] < 0.5).mean()) if not truth.all() else None,
    )


def _weights(strata: np.ndarray, pairs: Mapping[str, int]) -> np.ndarray:
    """Return the weight of each sampled pair, so that strata count as they do among all labels."""
    weights = np.zeros(len(strata))
    for name in np.unique(strata):
        drawn = strata == name
        weights[drawn] = pairs[str(name)] / drawn.sum()
    return weights


def _interval(equal: np.ndarray, strata: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """Return the 95 % interval of the weighted share of equal answers, from exact ones of each stratum.

    The strata's levels are set so that all intervals hold at once (Bonferroni), so it is conservative.
    """
    names = np.unique(strata)
    bounds = np.zeros(2)
    for name in names:
        drawn = strata == name
        share, level = weights[drawn].sum() / weights.sum(), 1 - 0.05 / len(names)
        number, right = int(drawn.sum()), float(equal[drawn].sum())
        low = exact_interval(math.floor(right), number, level)[0]
        bounds += share * np.array([low, exact_interval(math.ceil(right), number, level)[1]])
    return float(bounds[0]), float(bounds[1])


def _votes(votes: np.ndarray) -> np.ndarray:
    positive = votes.sum(0)
    return np.stack([len(votes) - positive, positive], axis=1)
