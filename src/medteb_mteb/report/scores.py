"""Scores per query, pair or text: recomputed from saved predictions, checked against mteb's main score.

An interval is only printed if its per-item scores reproduce the score beside it.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from mar_st.files import write_text
from medteb_mteb.measures import HOLES, ranked
from medteb_mteb.report.intervals import (
    AveragePrecisionSample,
    CorrelationSample,
    MeanSample,
    Sample,
    score_of,
)
from medteb_mteb.report.table import ScoreEntry

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mteb.abstasks.abstask import AbsTask
    from mteb.results import TaskResult

#: mteb rounds retrieval scores to five decimals.
_TOLERANCE = 5e-6 + 1e-6
_SAMPLES: dict[str, Any] = {
    "mean": MeanSample,
    "correlation": CorrelationSample,
    "average precision": AveragePrecisionSample,
}
#: trec_eval's names of mteb's measures.
_MEASURES = {
    "ndcg": "ndcg_cut", "map": "map_cut", "recall": "recall", "precision": "P", "hit_rate": "success",
}  # fmt: skip
#: Columns of similarities in mteb's predictions, by the prefix of a score; distances count downwards.
_SIMILARITIES = {
    "": ("similarity_scores", 1.0), "cosine": ("cosine_scores", 1.0), "dot": ("dot_scores", 1.0),
    "manhattan": ("manhattan_distances", -1.0), "euclidean": ("euclidean_distances", -1.0),
}  # fmt: skip


class _NoItemsError(ValueError):
    """A main score has no scores per item; the message says why."""


def save_items(path: Path, task: AbsTask, predictions: Path, main_score: float) -> None:
    """Write the scores of a loaded task per item as JSON: ids and numbers only; or why there are none.

    Args:
        path: File to write.
        task: The task, with its data.
        predictions: Folder given to mteb as ``prediction_folder``.
        main_score: mteb's main score, which the items must reproduce.
    """
    content: dict[str, Any] = {"metric": task.metadata.main_score, "dataset_revision": task.metadata.revision}
    try:
        ids, sample = _items(task, predictions)
        recomputed = score_of(sample)
        if not abs(recomputed - main_score) <= _TOLERANCE:
            raise _NoItemsError(f"the items give {recomputed:.6f}, not the reported {main_score:.6f}")
        kind = next(name for name, one in _SAMPLES.items() if isinstance(sample, one))
        content |= {"ids": ids, "kind": kind}
        values = asdict(sample)  # type: ignore[call-overload]
        content |= {
            name: value if isinstance(value, str) else value.tolist() for name, value in values.items()
        }
    except _NoItemsError as error:
        content["reason"] = str(error)
    write_text(path, json.dumps(content))


def result_entry(result: TaskResult, model: str, revision: str, metric: str, items: Path) -> ScoreEntry:
    """Return a result of mteb with its scores per item.

    Args:
        result: The result.
        model: Name of the model in the table.
        revision: Revision of the model.
        metric: mteb's name of the main score.
        items: File that `save_items` wrote; without it, the result has no scores per item.
    """
    score = result.get_score()
    sample, ids, note = load_items(items, score)
    first = next(iter(result.scores.values()))[0]
    # Only retrieval tasks that know their judged negatives have these scores.
    holes = {name: first.get(name) for name in HOLES} if "bpref" in first else None
    return ScoreEntry(
        model=model,
        model_revision=revision,
        task=result.task_name,
        metric=metric,
        score=score,
        dataset_revision=result.dataset_revision,
        sample=sample,
        note=note,
        holes=holes,
        ids=ids,
    )


def load_items(path: Path, main_score: float) -> tuple[Sample | None, tuple[str, ...], str]:
    """Return scores per item and their ids; or None, and the reason why there are none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if "reason" in content:
            return None, (), str(content["reason"])
        shown = {"metric", "dataset_revision", "ids", "kind"}
        values = {name: value for name, value in content.items() if name not in shown}
        sample: Sample = _SAMPLES[content["kind"]](
            **{name: one if isinstance(one, str) else _array(one) for name, one in values.items()}
        )
        ids = tuple(map(str, content["ids"] or ()))
        if abs(score_of(sample) - main_score) <= _TOLERANCE and len(ids) in (0, len(sample)):
            return sample, ids, ""
    except (OSError, KeyError, TypeError, ValueError):
        pass
    return None, (), "the saved result has no scores per item; run again with --overwrite"


def _items(task: Any, predictions: Path) -> tuple[list[str] | None, Sample]:
    """Return the ids of the queries of a ranking (else None: items are in the order of the file)."""
    metadata = task.metadata
    if len(task.eval_splits) != 1 or len(task.hf_subsets) != 1:
        raise _NoItemsError("the score is a mean over several splits or subsets")
    split, subset = task.eval_splits[0], task.hf_subsets[0]
    try:
        text = (predictions / task.prediction_file_name).read_text(encoding="utf-8")
        saved = json.loads(text)[subset][split]
    except (OSError, KeyError):
        raise _NoItemsError("no predictions were saved") from None
    data = task.dataset[subset][split] if subset in task.dataset else task.dataset[split]
    if metadata.type in ("Retrieval", "Reranking"):
        values = _per_query(task, saved, data["relevant_docs"])
        ids = sorted(values)
        return ids, MeanSample(_array([values[query] for query in ids]))
    similarity, _, kind = metadata.main_score.rpartition("_")
    if metadata.type == "STS" and similarity in _SIMILARITIES and kind in ("pearson", "spearman"):
        return None, CorrelationSample(
            _array(data["score"]), _array(saved[_SIMILARITIES[similarity][0]]), kind
        )
    if metadata.type == "PairClassification" and kind == "ap":
        columns = [
            (column, sign)
            for column, sign in _SIMILARITIES.values()
            if similarity == "max" or column.startswith(similarity)
        ]
        scores = np.array([sign * _array(saved[column]) for column, sign in columns])
        return None, AveragePrecisionSample(_array(data[task.label_column_name]), scores)
    if metadata.type == "Classification" and kind == "accuracy" and not task.is_cross_validation:
        # mteb trains several few-shot classifiers; a text's score is the share that gets it right.
        right = np.asarray(saved) == np.asarray(data[task.label_column_name])
        return None, MeanSample(right.mean(axis=0, dtype=np.float64))
    raise _NoItemsError(f"{metadata.main_score} of {metadata.type} tasks has no score per text")


def _per_query(
    task: Any, run: Mapping[str, Mapping[str, float]], qrels: Mapping[str, Mapping[str, int]]
) -> dict[str, float]:
    import pytrec_eval  # lazy: pytrec_eval

    name, _, cut = task.metadata.main_score.rpartition("_at_")
    if task.skip_first_result or name not in ("mrr", *_MEASURES):
        raise _NoItemsError(f"{task.metadata.main_score} has no score per query")
    if task.ignore_identical_ids:
        run = {query: {d: s for d, s in docs.items() if d != query} for query, docs in run.items()}
    if name == "mrr":
        return {query: _reciprocal_rank(qrels[query], docs, int(cut)) for query, docs in run.items()}
    measure = _MEASURES[name]
    scored = pytrec_eval.RelevanceEvaluator(qrels, {f"{measure}.{cut}"}).evaluate(run)
    return {query: float(values[f"{measure}_{cut}"]) for query, values in scored.items()}


def _reciprocal_rank(relevant: Mapping[str, int], run: Mapping[str, float], cut: int) -> float:
    ranks = (rank for rank, one in enumerate(ranked(run)[:cut], 1) if relevant.get(one, 0) > 0)
    return 1 / next(ranks, math.inf)


def _array(values: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.asarray(list(values), dtype=np.float64)
