"""Evaluator of task folders that keeps the score of every query or pair, for intervals and paired tests.

The numbers are those of mteb on the same folder: retrieval and reranking by pytrec_eval, STS by correlation.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from mar_st.data import locate
from mar_st.errors import MarError
from mar_st.evaluation.encoding import encode_texts
from mar_st.evaluation.scored_set import TaskError
from mar_st.evaluation.statistics import Scores
from mar_st.evaluation.task_files import read_pairs, read_retrieval

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sentence_transformers import SentenceTransformer

    from mar_st.evaluation.scored_set import Task, TaskType
    from mar_st.evaluation.statistics import Kind

#: Folder of the packaged tasks.
PACKAGED_TASKS_PREFIX = "package:medteb_mteb/"
DEFAULT_METRIC: dict[TaskType, str] = {"retrieval": "ndcg@10", "rerank": "map", "sts": "pearson"}
_CUT_METRICS = {"ndcg": "ndcg_cut", "recall": "recall", "p": "P"}
_UNCUT_METRICS = {"map": "map", "mrr": "recip_rank"}
#: Minimum number of documents kept per query in retrieval.
_DEPTH = 100


@dataclass(frozen=True)
class TaskData:
    """A task with its data.

    Attributes:
        task: Its settings.
        type: Retrieval, rerank or sts.
        metric: Name of the score.
        digest: sha256 of data and settings; each stored score belongs to one digest.
        queries: Text by id.
        corpus: Text by id, title and text joined.
        qrels: Query id -> document id -> grade.
        candidates: Query id -> document ids to rank (rerank).
        pairs: Text pairs (sts).
        gold: Gold score of every pair.
    """

    task: Task
    type: TaskType
    metric: str
    digest: str
    queries: dict[str, str] = field(default_factory=dict)
    corpus: dict[str, str] = field(default_factory=dict)
    qrels: dict[str, dict[str, int]] = field(default_factory=dict)
    candidates: dict[str, list[str]] = field(default_factory=dict)
    pairs: list[tuple[str, str]] = field(default_factory=list)
    gold: list[float] = field(default_factory=list)

    @property
    def kind(self) -> Kind:
        """Return the kind of statistic that turns the items into a score."""
        if self.type != "sts":
            return "mean"
        return "spearman" if self.metric == "spearman" else "pearson"

    @property
    def items(self) -> list[str]:
        """Return the ids of the scored items: judged queries in order, or pairs by position."""
        return list(self.qrels) if self.type != "sts" else [str(index) for index in range(len(self.pairs))]

    def scores(self, values: Sequence[Sequence[float]]) -> Scores:
        """Return the values of several seeds, `(seeds, items)`, as scores."""
        gold = np.array(self.gold) if self.type == "sts" else None
        return Scores(np.array(values, dtype=np.float64), gold, self.kind)

    @property
    def sample(self) -> list[str]:
        """Return the texts that a query encoder meets here."""
        return list(self.queries.values()) or [first for first, _ in self.pairs]


def load_task(task: Task) -> TaskData:
    """Read a task and check it.

    Args:
        task: Its settings; `path` is a folder in the Hub layout (see the how-to on your own data).

    Raises:
        TaskError: The metric does not fit the type.
        MarError: A file is missing or broken; the message names file and line.
    """
    folder = _folder(task.path)
    kind: TaskType = task.type if task.type != "auto" else _type(folder, task)
    metric = task.metric or DEFAULT_METRIC[kind]
    _check_metric(metric, kind, task.name)
    settings = {"type": kind, "metric": metric, "split": task.split, "prompt": task.prompt}
    read: dict[str, Any] = (
        read_pairs(folder, task.split)
        if kind == "sts"
        else read_retrieval(folder, task.split, rerank=kind == "rerank")
    )
    content = json.dumps([settings, read], ensure_ascii=False, sort_keys=True)
    return TaskData(task, kind, metric, hashlib.sha256(content.encode()).hexdigest(), **read)


def score(
    model: SentenceTransformer,
    data: TaskData,
    *,
    batch_size: int = 64,
    stored: Callable[[Callable[[], Any]], Any] | None = None,
) -> list[float]:
    """Return the score of every item of a task, in the order of `data.items`.

    Args:
        model: Any sentence-transformers model; queries and documents take its routes if it has any.
        data: The task.
        batch_size: Texts encoded at a time.
        stored: Returns stored vectors of the corpus, or calls its argument to encode them and stores them.

    Returns:
        One value per judged query (its metric), or per pair (its predicted similarity).

    Raises:
        TaskError: The task asks for a prompt that the model does not have.
    """

    def encode(texts: Sequence[str], role: Literal["query", "document"] | None) -> Any:
        return encode_texts(model, texts, data.task, data.type, role, batch_size=batch_size)

    if data.type == "sts":
        first, second = (encode([pair[side] for pair in data.pairs], None) for side in (0, 1))
        return [float(value) for value in model.similarity_pairwise(first, second)]
    queries = encode(list(data.queries.values()), "query")

    def encoded() -> Any:
        return encode(list(data.corpus.values()), "document")

    documents = encoded() if stored is None else stored(encoded)
    return score_vectors(data, queries, documents, model.similarity)


def score_vectors(
    data: TaskData, queries: Any, documents: Any, similarity: Callable[[Any, Any], Any]
) -> list[float]:
    """Return the score of every judged query of a retrieval or reranking task, from vectors.

    Args:
        data: The task.
        queries: Tensor `(queries, dim)`, in the order of `data.queries`.
        documents: Tensor `(documents, dim)`, in the order of `data.corpus`, on any device.
        similarity: Returns the scores of queries and documents, `(queries, documents)`.
    """
    return score_run(_rank(similarity, data, queries, documents.to(queries.device)), data)


def _rank(
    similarity: Callable[[Any, Any], Any], data: TaskData, queries: Any, documents: Any
) -> dict[str, dict[str, float]]:
    """Return the scores of the best documents of every query, or of its candidates."""
    ids = list(data.corpus)
    position = {key: index for index, key in enumerate(ids)}
    depth = min(len(ids), max(_DEPTH, _cut(data.metric) or 1000))
    run: dict[str, dict[str, float]] = {}
    rows = list(data.queries)
    for start in range(0, len(rows), 64):
        scores = similarity(queries[start : start + 64], documents)
        for row, key in zip(scores, rows[start : start + 64], strict=True):
            if data.type == "rerank":
                columns = [position[document] for document in data.candidates[key]]
                values = row[columns].tolist()
            else:
                top = row.topk(depth)
                columns, values = top.indices.tolist(), top.values.tolist()
            run[key] = {ids[index]: value for index, value in zip(columns, values, strict=True)}
    return run


def score_run(run: dict[str, dict[str, float]], data: TaskData) -> list[float]:
    """Return the score of every judged query of a retrieval or reranking task, from ranked documents.

    Args:
        run: Query id -> document id -> score; a query without documents scores 0.
        data: The task.
    """
    import pytrec_eval  # lazy: pytrec_eval

    name, _, cut = data.metric.partition("@")
    measure = f"{_CUT_METRICS[name]}.{cut}" if cut else _UNCUT_METRICS[name]
    result = pytrec_eval.RelevanceEvaluator(data.qrels, {measure}).evaluate(run)
    key = measure.replace(".", "_")
    return [float(result[query][key]) if query in result else 0.0 for query in data.qrels]


def _cut(metric: str) -> int | None:
    _, _, cut = metric.partition("@")
    return int(cut) if cut else None


def _check_metric(metric: str, kind: TaskType, name: str) -> None:
    if kind == "sts":
        valid = metric in ("pearson", "spearman")
        choice = "pearson, spearman"
    else:
        valid = metric in _UNCUT_METRICS or re.fullmatch(r"(ndcg|recall|p)@[1-9]\d*", metric) is not None
        choice = "ndcg@K, recall@K, p@K, map, mrr"
    if not valid:
        raise TaskError(f"task {name}: {metric!r} is not a metric of {kind} tasks; choose from {choice}.")


def _folder(path: str) -> Path:
    plain = Path(path).expanduser()
    if path.startswith("package:") or (not plain.exists() and plain.name == path):
        try:
            return locate(path if path.startswith("package:") else PACKAGED_TASKS_PREFIX + path)
        except MarError as error:
            raise _no_task(path) from error
    if not plain.is_dir():
        raise _no_task(path)
    return plain


def _no_task(path: str) -> MarError:
    return MarError(
        f"No task at {path}. Give a folder in the Hub layout, 'package:NAME/FOLDER' or the name of a "
        "packaged task such as MedTEBRetrieval."
    )


def _type(folder: Path, task: Task) -> TaskType:
    if (folder / "top_ranked.jsonl").is_file():
        return "rerank"
    if (folder / "corpus.jsonl").is_file():
        return "retrieval"
    if (folder / f"{task.split}.jsonl").is_file():
        return "sts"
    raise MarError(
        f"{folder} is not a task: it has neither corpus.jsonl (retrieval) nor {task.split}.jsonl (STS)."
    )
