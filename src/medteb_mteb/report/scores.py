"""Scores per query, pair or text: recomputed from saved predictions, checked against mteb's main score.

An interval is only printed if its per-item scores reproduce the score beside it.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mar_st.files import write_text
from medteb_mteb.report.intervals import (
    AveragePrecisionSample,
    CorrelationSample,
    MeanSample,
    Sample,
    score_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mteb.abstasks.abstask import AbsTask

__all__ = [
    "ItemScores",
    "NoItemScoresError",
    "item_scores",
    "load_item_scores",
    "save_item_scores",
    "save_no_item_scores",
]

# mteb rounds retrieval scores to five decimals; everything else it reports in full.
_TOLERANCE = 1e-6
_ROUNDED_TOLERANCE = 5e-6 + 1e-6
_SCHEMA_VERSION = 1


class NoItemScoresError(ValueError):
    """A main score has no per-item scores; the message says why."""


@dataclass(frozen=True)
class ItemScores:
    """Per-item scores of one model on one task.

    Attributes:
        sample: Per-item values and their aggregation to the main score.
        metric: mteb's name of the main score.
        dataset_revision: Revision of the data.
        ids: Query ids for retrieval and reranking, else None (items are in file order).
    """

    sample: Sample
    metric: str
    dataset_revision: str
    ids: list[str] | None = None


def item_scores(task: AbsTask, predictions: Path, main_score: float) -> ItemScores:
    """Recomputes the main score item by item from the predictions that mteb saved.

    Args:
        task: The task, loaded, with one split and one subset.
        predictions: Folder given to mteb as ``prediction_folder``.
        main_score: mteb's main score, which the items must reproduce.

    Raises:
        NoItemScoresError: If the main score has no per-item scores, or they do not reproduce it.
        ValueError: If the task is not loaded; mteb unloads tasks that it has loaded itself.
    """
    if not task.data_loaded:
        raise ValueError(f"{task.metadata.name} holds no data; call load_data() before evaluating it")
    metadata = task.metadata
    if not math.isfinite(main_score):
        raise NoItemScoresError("the score is undefined")
    if len(task.eval_splits) != 1 or len(task.hf_subsets) != 1:
        raise NoItemScoresError("the score is a mean over several splits or subsets")
    split, subset = task.eval_splits[0], task.hf_subsets[0]
    file = predictions / task.prediction_file_name
    try:
        saved = json.loads(file.read_text(encoding="utf-8"))[subset][split]
    except (OSError, KeyError, json.JSONDecodeError):
        raise NoItemScoresError("no predictions were saved") from None
    metric = metadata.main_score
    ids = None
    tolerance = _TOLERANCE
    if metadata.type in ("Retrieval", "Reranking"):
        values = _per_query(task, saved, split, subset)
        ids = sorted(values)
        sample: Sample = MeanSample(np.array([values[query] for query in ids], dtype=np.float64))
        tolerance = _ROUNDED_TOLERANCE
    else:
        sample = _labelled_sample(task, saved, split, subset)
    recomputed = score_of(sample)
    if not abs(recomputed - main_score) <= tolerance:
        raise NoItemScoresError(f"the items give {recomputed:.6f}, not the reported {main_score:.6f}")
    return ItemScores(sample, metric, metadata.revision, ids)


def _data(task: AbsTask, split: str, subset: str) -> Any:
    dataset: Any = task.dataset
    return dataset[subset][split] if subset in dataset else dataset[split]


def _per_query(
    task: Any, run: Mapping[str, Mapping[str, float]], split: str, subset: str
) -> dict[str, float]:
    import pytrec_eval  # lazy: pytrec_eval

    if task.skip_first_result:
        raise NoItemScoresError("the task skips the first result")
    qrels = _data(task, split, subset)["relevant_docs"]
    if task.ignore_identical_ids:
        run = {query: {d: s for d, s in docs.items() if d != query} for query, docs in run.items()}
    name, _, cut = task.metadata.main_score.rpartition("_at_")
    if name == "mrr":
        return {query: _reciprocal_rank(qrels[query], docs, int(cut)) for query, docs in run.items()}
    measures = {
        "ndcg": "ndcg_cut",
        "map": "map_cut",
        "recall": "recall",
        "precision": "P",
        "hit_rate": "success",
    }
    if name not in measures:
        raise NoItemScoresError(f"{task.metadata.main_score} has no score per query")
    measure = measures[name]
    scored = pytrec_eval.RelevanceEvaluator(qrels, {f"{measure}.{cut}"}).evaluate(run)
    return {query: float(values[f"{measure}_{cut}"]) for query, values in scored.items()}


def _reciprocal_rank(relevant: Mapping[str, int], run: Mapping[str, float], cut: int) -> float:
    ranked = sorted(run, key=lambda document: (run[document], document), reverse=True)[:cut]
    for rank, document in enumerate(ranked, start=1):
        if relevant.get(document, 0) > 0:
            return 1.0 / rank
    return 0.0


def _labelled_sample(task: Any, saved: Any, split: str, subset: str) -> Sample:
    metadata = task.metadata
    metric = metadata.main_score
    if metadata.type == "STS":
        similarity, _, method = metric.rpartition("_")
        column = {
            "": "similarity_scores",
            "cosine": "cosine_scores",
            "manhattan": "manhattan_distances",
            "euclidean": "euclidean_distances",
        }.get(similarity)
        if column is None or method not in ("pearson", "spearman"):
            raise NoItemScoresError(f"{metric} has no pairs to resample")
        gold = _data(task, split, subset)["score"]
        return CorrelationSample(_array(gold), _array(saved[column]), method)
    if metadata.type == "PairClassification" and metric.endswith("_ap"):
        signs = {
            "similarity_scores": 1.0,
            "cosine_scores": 1.0,
            "dot_scores": 1.0,
            "manhattan_distances": -1.0,
            "euclidean_distances": -1.0,
        }
        wanted = metric.removesuffix("_ap")
        columns = [name for name in signs if wanted == "max" or name.startswith(wanted)]
        labels = _array(_data(task, split, subset)[task.label_column_name])
        return AveragePrecisionSample(labels, np.array([signs[n] * _array(saved[n]) for n in columns]))
    if metadata.type == "Classification" and metric == "accuracy" and not task.is_cross_validation:
        gold = np.asarray(_data(task, split, subset)[task.label_column_name])
        # mteb trains several few-shot classifiers; a text's score is the share that gets it right.
        return MeanSample((np.asarray(saved) == gold).mean(axis=0, dtype=np.float64))
    raise NoItemScoresError(f"{metric} of {metadata.type} tasks has no score per text")


def _array(values: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.asarray(list(values), dtype=np.float64)


def save_item_scores(path: Path, scores: ItemScores) -> None:
    """Write per-item scores as JSON, atomically; ids and numbers only, no text."""
    sample = scores.sample
    content: dict[str, Any] = {
        "schema_version": _SCHEMA_VERSION,
        "metric": scores.metric,
        "dataset_revision": scores.dataset_revision,
        "ids": scores.ids,
    }
    if isinstance(sample, MeanSample):
        content |= {"kind": "mean", "values": sample.values.tolist()}
    elif isinstance(sample, CorrelationSample):
        content |= {
            "kind": sample.method,
            "gold": sample.gold.tolist(),
            "predicted": sample.predicted.tolist(),
        }
    elif isinstance(sample, AveragePrecisionSample):
        content |= {
            "kind": "average_precision",
            "labels": sample.labels.tolist(),
            "scores": sample.scores.tolist(),
        }
    else:
        raise TypeError(f"cannot save {type(sample).__name__}")
    _write(path, content)


def save_no_item_scores(path: Path, task: AbsTask, reason: str) -> None:
    """Store why a result has no per-item scores, so that no new evaluation is needed to find out."""
    _write(
        path,
        {
            "schema_version": _SCHEMA_VERSION,
            "metric": task.metadata.main_score,
            "dataset_revision": task.metadata.revision,
            "ids": None,
            "kind": "none",
            "reason": reason,
        },
    )


def _write(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(content))


def load_item_scores(path: Path, *, metric: str, dataset_revision: str, main_score: float) -> ItemScores:
    """Read per-item scores back and check that they belong to a result.

    Raises:
        NoItemScoresError: If there are no scores, or if their metric, data or run is another one.
    """
    reason = None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        kind = content["kind"]
        sample: Sample = MeanSample(np.empty(0))
        if kind == "none":
            reason = str(content["reason"])
        elif kind == "mean":
            sample = MeanSample(_array(content["values"]))
        elif kind == "average_precision":
            sample = AveragePrecisionSample(_array(content["labels"]), np.array(content["scores"], float))
        elif kind in ("pearson", "spearman"):
            sample = CorrelationSample(_array(content["gold"]), _array(content["predicted"]), kind)
        else:
            raise ValueError(f"unknown kind {kind!r}")
        scores = ItemScores(sample, content["metric"], content["dataset_revision"], content["ids"])
        recomputed = score_of(sample) if reason is None else math.nan
    except FileNotFoundError:
        raise NoItemScoresError("no scores per item were saved; run again with --overwrite") from None
    except (OSError, KeyError, TypeError, ValueError):
        raise NoItemScoresError(f"{path} is damaged; run again with --overwrite") from None
    if (scores.metric, scores.dataset_revision) != (metric, dataset_revision):
        raise NoItemScoresError("the saved scores per item are of other data; run again with --overwrite")
    if reason is not None:
        raise NoItemScoresError(reason)
    if not abs(recomputed - main_score) <= _ROUNDED_TOLERANCE:
        raise NoItemScoresError("the saved scores per item are of another run; run again with --overwrite")
    return scores
