"""A sample of labels for clinicians: written without the labels, compared when it comes back.

Source: the validation of the benchmark, where clinicians labelled 5,000 pairs again (CARE paper).
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import random
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.labels.agreement import fleiss_kappa
from medteb_mteb.curation.labels.grades import GRADES, POSITIVE
from medteb_mteb.curation.labels.intervals import exact_interval

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from medteb_mteb.curation.files.records import Text
    from medteb_mteb.curation.labels.grades import Label

__all__ = ["Review", "export_review", "import_review", "key_of", "read_experts"]

COLUMNS = ("row", "query", "document", "answer", "comment")
YES, NO = ("1", "yes", "y", "是"), ("0", "no", "n", "否")
#: Cells that begin so are formulas to a spreadsheet.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True)
class Review:
    """Agreement of clinicians with a sample of labels.

    Attributes:
        pairs: Pairs that all of them have answered.
        unanswered: Pairs left out because someone has not.
        agreement: Share of their answers that equal the labels, over all pairs that were labelled: positives
            and negatives count by their shares there, not by those in the sample.
        low: Lower end of its 95 % interval, from exact (Clopper-Pearson) ones of positives and of negatives.
        high: Upper end.
        kappa: Fleiss' kappa of the clinicians among themselves; `None` for one clinician.
        kappa_with_labels: The same with the labels as one more rater.
        by_reviewer: Agreement of each.
        positives_confirmed: Share of sampled positives that most clinicians call positive.
        negatives_confirmed: Share of sampled negatives that most clinicians call negative.
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
        """JSON-ready content."""
        return asdict(self)


def key_of(sheet: Path) -> Path:
    """Return the path of the labels of a sheet; reviewers must not see this file."""
    return sheet.with_name(sheet.stem + ".key.json")


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
        size: Pairs to draw; all there are if fewer.
        seed: Seed of the draw.
        positives: Share of positives in the sample; default their share among the labels.

    Returns:
        Number of pairs written.

    Raises:
        BuildError: No labels, an id without a text, a share that the labels cannot give, or the file exists.
    """
    if sheet.exists() or key_of(sheet).exists():
        raise BuildError(f"{sheet} is there already; give another name, so that no answers are lost.")
    sides = {
        1: [label for label in labels if label.relevance],
        0: [label for label in labels if label.relevance == 0],
    }
    known = len(sides[1]) + len(sides[0])
    if not known:
        raise BuildError("There are no labels to review: all pairs were discarded, or none was judged.")
    share = len(sides[1]) / known if positives is None else positives
    if positives is None and not round(min(size, known) * share):
        raise BuildError(
            f"A sheet of {min(size, known)} pairs would hold no positive: {len(sides[1])} of {known} labels "
            "are. A review without one says nothing about what answers. Give --positives 0.5 or a larger "
            "--size; --positives 0 reviews negatives alone."
        )
    if not 0 <= share <= 1:
        raise BuildError(f"The share of positives lies between 0 and 1; got {share}.")
    wanted = {1: round(min(size, known) * share)}
    wanted[0] = min(size, known) - wanted[1]
    for side, number in wanted.items():
        if number > len(sides[side]):
            raise BuildError(
                f"{number} {'positives' if side else 'negatives'} are asked for and there are "
                f"{len(sides[side])}. Lower --size or change --positives."
            )
    rng = random.Random(seed)
    drawn = [label for side in (1, 0) for label in rng.sample(sides[side], wanted[side])]
    rng.shuffle(drawn)
    rows, key = [], []
    for number, label in enumerate(drawn, start=1):
        query, document = _text(queries, label.query_id), _text(documents, label.document_id)
        rows.append([number, _cell(query), _cell(document), "", ""])
        key.append(
            {
                "row": number,
                "query-id": label.query_id,
                "corpus-id": label.document_id,
                "label": int(bool(label.relevance)),
                "sha256": hashlib.sha256(f"{query}\n{document}".encode()).hexdigest(),
            }
        )
    content = {"seed": seed, "labelled": {"positive": len(sides[1]), "negative": len(sides[0])}, "rows": key}
    sheet.parent.mkdir(parents=True, exist_ok=True)
    key_of(sheet).write_text(json.dumps(content, ensure_ascii=False, indent=1), encoding="utf-8")
    with sheet.open(
        "w", encoding="utf-8-sig", newline=""
    ) as stream:  # the mark tells spreadsheets it is UTF-8
        writer = csv.writer(stream)
        writer.writerow(COLUMNS)
        writer.writerows(rows)
    return len(rows)


def import_review(sheet: Path, answered: Mapping[str, Path]) -> Review:
    """Compare the answers of clinicians with the labels.

    An answer is a grade (S and A are positive), or 1 / 0, yes / no, 是 / 否.

    Args:
        sheet: The sheet as it was exported; its key lies beside it.
        answered: Name of each clinician and the file that came back.

    Raises:
        BuildError: The key is missing, rows are missing, doubled or unknown, an answer is invalid, or nobody
            has answered anything.
    """
    path = key_of(sheet)
    if not path.is_file():
        raise BuildError(f"There is no {path}, which holds the labels of {sheet.name}.")
    key = json.loads(path.read_text(encoding="utf-8"))
    labels = {entry["row"]: entry["label"] for entry in key["rows"]}
    answers = {name: _answers(file, labels) for name, file in answered.items()}
    if not answers:
        raise BuildError("Give the file of at least one reviewer.")
    rows = [row for row in labels if all(row in found for found in answers.values())]
    if not rows:
        raise BuildError("There is no pair that all reviewers have answered.")
    truth = np.array([labels[row] for row in rows])
    given = np.array([[found[row] for row in rows] for found in answers.values()])
    equal = (given == truth).mean(0)
    weights = _weights(truth, key["labelled"])
    low, high = _interval(equal, truth, weights)
    voters = np.vstack([given, truth])
    majority = given.mean(0)
    return Review(
        pairs=len(rows),
        unanswered=len(labels) - len(rows),
        agreement=float((equal * weights).sum() / weights.sum()),
        low=low,
        high=high,
        kappa=fleiss_kappa(_votes(given)) if len(given) > 1 else None,
        kappa_with_labels=fleiss_kappa(_votes(voters)),
        by_reviewer={
            name: float(((given[i] == truth) * weights).sum() / weights.sum())
            for i, name in enumerate(answers)
        },
        positives_confirmed=float((majority[truth == 1] > 0.5).mean()) if truth.any() else None,
        negatives_confirmed=float((majority[truth == 0] < 0.5).mean()) if not truth.all() else None,
    )


def read_experts(sheet: Path, answered: Sequence[Path]) -> dict[tuple[str, str], int]:
    """Read what most experts say of each pair of a sheet, by query and document; 0 where they are split.

    Args:
        sheet: The sheet as it was exported; its key lies beside it.
        answered: The files that came back. Pairs that one of them leaves out are left out.

    Raises:
        BuildError: As of `import_review`.
    """
    path = key_of(sheet)
    if not path.is_file():
        raise BuildError(f"There is no {path}, which holds the labels of {sheet.name}.")
    entries = {entry["row"]: entry for entry in json.loads(path.read_text(encoding="utf-8"))["rows"]}
    labels = {row: entry["label"] for row, entry in entries.items()}
    given = [_answers(file, labels) for file in answered]
    rows = [row for row in labels if all(row in found for found in given)]
    if not rows or not given:
        raise BuildError("There is no pair that all reviewers have answered.")
    return {
        (entries[row]["query-id"], entries[row]["corpus-id"]): int(
            2 * sum(one[row] for one in given) > len(given)
        )
        for row in rows
    }


def _answers(file: Path, labels: Mapping[int, int]) -> dict[int, int]:
    """The answers of one reviewer, by row; rows without one are left out."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            rows = list(csv.DictReader(stream))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BuildError(f"{file} cannot be read as CSV in UTF-8 ({error}). Save it so.") from error
    seen: set[int] = set()
    found = {}
    for line, row in enumerate(rows, start=2):
        try:
            number = int(row["row"])
        except (KeyError, TypeError, ValueError) as error:
            raise BuildError(f"{file}:{line}: expected the columns {', '.join(COLUMNS)}.") from error
        if number not in labels or number in seen:
            what = "is there twice" if number in seen else "is not of this sheet"
            raise BuildError(f"{file}:{line}: row {number} {what}.")
        seen.add(number)
        answer = (row.get("answer") or "").strip()
        if answer:
            found[number] = _positive(answer, f"{file}:{line}")
    missing = len(labels) - len(seen)
    if missing:
        raise BuildError(f"{file} lacks {missing} of the {len(labels)} rows; leave unanswered ones in.")
    return found


def _positive(answer: str, where: str) -> int:
    if answer.upper() in GRADES:
        return int(answer.upper() in POSITIVE)
    if answer.lower() in YES:
        return 1
    if answer.lower() in NO:
        return 0
    raise BuildError(f"{where}: {answer!r} is not a valid answer; give one of {', '.join(GRADES)}, 1 or 0.")


def _weights(truth: np.ndarray, labelled: Mapping[str, int]) -> np.ndarray:
    """Weight of each sampled pair, so that positives and negatives count as they do among all labels."""
    weights = np.zeros(len(truth))
    for side, name in ((1, "positive"), (0, "negative")):
        drawn = truth == side
        if drawn.any():
            weights[drawn] = labelled[name] / drawn.sum()
    return weights


def _interval(equal: np.ndarray, truth: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """95 % interval of the weighted share of equal answers, from exact ones of positives and of negatives.

    Each has the level that lets both hold together (Bonferroni), so it is rather too wide than too narrow.
    """
    sides = [truth == side for side in (0, 1) if (truth == side).any()]
    bounds = np.zeros(2)
    for drawn in sides:
        share, level = weights[drawn].sum() / weights.sum(), 1 - 0.05 / len(sides)
        number, right = int(drawn.sum()), float(equal[drawn].sum())
        low = exact_interval(math.floor(right), number, level)[0]
        bounds += share * np.array([low, exact_interval(math.ceil(right), number, level)[1]])
    return float(bounds[0]), float(bounds[1])


def _votes(given: np.ndarray) -> np.ndarray:
    positive = given.sum(0)
    return np.stack([len(given) - positive, positive], axis=1)


def _text(texts: Mapping[str, Text], name: str) -> str:
    if name not in texts:
        raise BuildError(f"The labels name {name!r}, and no text has this id.")
    return texts[name].full


def _cell(text: str) -> str:
    return f"'{text}" if text.startswith(FORMULA) else text
