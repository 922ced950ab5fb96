"""Redundancy of a new task with existing ones, and leakage of a test into training sets.

Two groups of tasks that order models alike are redundant; the rank correlation of their averages over models
measures how much (MAR paper, Table 9: 0.354 between CMedQA reranking and the new tasks, p = 0.215,
14 models).
"""

from __future__ import annotations

import csv
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mar_st.files import repeated
from mar_st.text.normalisation import normalise
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.texts.split import QUERY_SIMILARITY, near_duplicates
from medteb_mteb.report.intervals import CorrelationSample, bootstrap_interval

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Correlation", "Leakage", "correlation", "leakage", "read_scores"]

Scores = dict[str, dict[str, float]]

#: A correlation over fewer models says nothing.
MIN_MODELS = 4


@dataclass(frozen=True)
class Correlation:
    """Rank correlation of models between two groups of tasks.

    Attributes:
        left: Tasks of one group.
        right: Tasks of the other group.
        models: Models that have scores on all of them.
        left_out: Models that lack a score.
        spearman: Rank correlation of the two averages.
        p: Two-sided p-value of `spearman` against 0, by the t distribution.
        low: Lower end of the 95 % bootstrap interval over models.
        high: Upper end of that interval.
        kendall: Kendall's tau-b.
    """

    left: tuple[str, ...]
    right: tuple[str, ...]
    models: tuple[str, ...]
    left_out: tuple[str, ...]
    spearman: float
    p: float
    low: float
    high: float
    kendall: float

    def to_json(self) -> dict[str, Any]:
        """Return JSON-ready content."""
        return asdict(self)


def correlation(
    scores: Mapping[str, Mapping[str, float]], left: Sequence[str], right: Sequence[str]
) -> Correlation:
    """Correlate the averages of two groups of tasks over models.

    Args:
        scores: Model -> task -> score.
        left: Tasks of one group.
        right: Tasks of the other group.

    Raises:
        BuildError: A task has no score or is in both groups, or there are too few models, or too many of
            them have the same average.
    """
    known = {task for row in scores.values() for task in row}
    unknown = [task for task in (*left, *right) if task not in known]
    if unknown or not left or not right:
        problem = f"No model has a score on {unknown[0]!r}" if unknown else "Both groups need a task"
        raise BuildError(f"{problem}; choose from {', '.join(sorted(known))}.")
    if shared := sorted(set(left) & set(right)):
        raise BuildError(f"{shared[0]} is in both groups; a task correlates with itself.")
    models = [model for model, row in scores.items() if all(task in row for task in (*left, *right))]
    if len(models) < MIN_MODELS:
        raise BuildError(
            f"{len(models)} models have scores on all of {', '.join((*left, *right))}; a correlation needs "
            f"{MIN_MODELS}."
        )
    first, second = (
        np.array([np.mean([scores[model][task] for task in group]) for model in models])
        for group in (left, right)
    )
    from scipy import stats  # lazy: scipy

    try:
        bounds = bootstrap_interval(CorrelationSample(first, second, "spearman"))
    except ValueError as error:
        raise BuildError(
            f"Too many of the {len(models)} models have equal averages over {', '.join(left)} or over "
            f"{', '.join(right)}, so their order says nothing. Add models, or choose other tasks."
        ) from error
    rho, p = stats.spearmanr(first, second)
    return Correlation(
        tuple(left),
        tuple(right),
        tuple(models),
        tuple(model for model in scores if model not in models),
        float(rho),
        float(p),
        bounds.low,
        bounds.high,
        float(stats.kendalltau(first, second).statistic),
    )


def read_scores(source: str | Path) -> Scores:
    """Return the main scores by model and task, from a CSV table or a results folder of mteb.

    A table has a column `model` and a column per task; an empty cell is not a score.

    Raises:
        BuildError: The source is neither, a score is not a number (its line or file is named), or the
            folder holds results of several revisions of a model.
    """
    path = Path(source)
    if path.is_dir():
        return _of_results(path)
    if not path.is_file():
        raise BuildError(f"There is no {path}. Give a CSV table, or a results folder of mteb.")
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            return _of_table(path, csv.DictReader(stream))
    except UnicodeDecodeError as error:
        raise BuildError(f"{path} is not valid UTF-8 ({error.reason}); save it as UTF-8.") from error
    except csv.Error as error:
        raise BuildError(f"{path} is not a CSV table ({error}).") from error


def _of_table(path: Path, reader: csv.DictReader[str]) -> Scores:
    """Return the scores of a CSV table."""
    scores: Scores = {}
    columns = reader.fieldnames or ()
    if "model" not in columns:
        raise BuildError(f"{path} has no column 'model'; it has {', '.join(columns)}.")
    # Spreadsheets write columns without a name.
    twice = repeated(column for column in columns if column.strip())
    if twice is not None:
        raise BuildError(f"{path}:1: the column {twice!r} occurs twice; keep one of them.")
    for row in reader:
        where = f"{path}:{reader.line_num}"
        if None in row:
            raise BuildError(f"{where}: the row has more cells than the {len(columns)} columns.")
        model = row.pop("model")
        if not model or model in scores:
            raise BuildError(f"{where}: the model {model!r} is {'given twice' if model else 'empty'}.")
        scores[model] = {task: _score(cell, where) for task, cell in row.items() if cell and cell.strip()}
    return scores


def _of_results(folder: Path) -> Scores:
    """Return the main scores of each model below `results/`."""
    root = folder / "results" if (folder / "results").is_dir() else folder
    scores: Scores = {}
    revisions: dict[str, str] = {}
    for file in sorted(root.glob("*/*/*.json")):
        if file.stem == "model_meta":
            continue
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            values = [row["main_score"] for rows in content["scores"].values() for row in rows]
            task = content["task_name"]
        except (ValueError, KeyError, AttributeError, TypeError):
            continue  # some other JSON file
        model, revision = file.parts[-3].replace("__", "/"), file.parts[-2]
        if revisions.setdefault(model, revision) != revision:
            raise BuildError(
                f"{folder} holds results of several revisions of {model} ({revisions[model]}, {revision}); "
                "keep one."
            )
        mean = float(np.mean([_score(value, str(file)) for value in values]))
        scores.setdefault(model, {})[task] = mean
    if not scores:
        raise BuildError(f"{folder} holds no results of mteb.")
    return scores


def _score(value: Any, where: str) -> float:
    """Return a score as a finite number; `where` names its place in the error."""
    try:
        score = float(value)
        if not math.isfinite(score):
            raise ValueError(f"{value} is not finite")
    except (TypeError, ValueError) as error:
        raise BuildError(f"{where}: {error}; a score is a number.") from error
    return score


@dataclass(frozen=True)
class Leakage:
    """Overlap of a test with a training set.

    Attributes:
        queries: Number of test queries.
        equal: Number of test queries whose normalised text is among the training texts.
        near: Number of test queries with a near-duplicate among the training texts, including equal ones.
        documents: Number of test documents that are relevant to a query.
        equal_documents: Number of these documents whose normalised text is among the training texts.
        examples: Pairs of a test query and its nearest training text, at most ten.
    """

    queries: int
    equal: int
    near: int
    documents: int
    equal_documents: int
    examples: tuple[tuple[str, str], ...]

    def to_json(self) -> dict[str, Any]:
        """Return JSON-ready content."""
        return asdict(self)


def leakage(
    queries: Sequence[str],
    documents: Sequence[str],
    training: Sequence[str],
    *,
    threshold: float = QUERY_SIMILARITY,
) -> Leakage:
    """Look for a test in a training set.

    Args:
        queries: Queries of the test.
        documents: Relevant documents of the test.
        training: All texts of the training set.
        threshold: Minimum similarity of near-duplicates, see `medteb_mteb.curation.texts.split`.
    """
    texts = list(dict.fromkeys(training))
    known = {normalise(text) for text in texts}
    nearest: dict[int, tuple[float, int]] = {}
    for row, other, similarity in near_duplicates(queries, texts, threshold=threshold):
        if row not in nearest or similarity > nearest[row][0]:
            nearest[row] = similarity, other
    pairs = sorted((-similarity, row, other) for row, (similarity, other) in nearest.items())
    return Leakage(
        len(queries),
        sum(normalise(text) in known for text in queries),
        len(nearest),
        len(documents),
        sum(normalise(text) in known for text in documents),
        tuple((queries[row], texts[other]) for _, row, other in pairs[:10]),
    )
