"""Scores of models on task folders that keep the value of every query or pair, for intervals and tests.

The numbers are those of mteb on the same folder: retrieval and reranking by pytrec_eval, STS by correlation.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field

from mar_st.data.corpus import texts_by_id
from mar_st.data.rows import Row, locate, read_rows
from mar_st.data.trec import read_qrels
from mar_st.errors import MarError
from mar_st.evaluation.statistics import Kind, Scores
from mar_st.files import card_header
from mar_st.options import Settings
from mar_st.text.values import as_id, as_number, as_text

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from sentence_transformers import SentenceTransformer


TaskType = Literal["retrieval", "rerank", "sts"]
Role = Literal["query", "document"]

#: Pattern of the names of tasks, rows and studies.
NAME_PATTERN = r"^[a-z0-9][a-z0-9.-]*$"

#: Folder of the packaged tasks.
PACKAGED_TASKS_PREFIX = "package:medteb_mteb/"
DEFAULT_METRIC: dict[TaskType, str] = {"retrieval": "ndcg@10", "rerank": "map", "sts": "pearson"}
_METRICS = {"ndcg": "ndcg_cut", "recall": "recall", "p": "P", "map": "map", "mrr": "recip_rank"}
#: mteb's names of the types; prompts are named after them.
_MTEB_TYPES: dict[TaskType, str] = {"retrieval": "Retrieval", "rerank": "Reranking", "sts": "STS"}
#: Minimum number of documents kept per query in retrieval.
_DEPTH = 100
#: Number of texts from which encoding shows a progress bar.
_PROGRESS_TEXTS = 2000


class Task(Settings):
    """A set that every model is scored on: a folder in the Hub layout, with a score per query or pair."""

    name: str = Field(pattern=NAME_PATTERN)
    path: str = Field(description="folder, 'package:NAME/FOLDER' or the name of a packaged task")
    type: Literal["auto", "retrieval", "rerank", "sts"] = "auto"
    metric: str | None = Field(
        default=None,
        description="ndcg@K, recall@K, p@K, map, mrr; pearson, spearman. "
        "Default: ndcg@10, map (rerank), pearson",
    )
    split: str = "test"


@dataclass(frozen=True)
class TaskData:
    """A task with its data.

    Attributes:
        task: Its settings.
        type: Retrieval, rerank or sts.
        metric: Name of the score.
        digest: sha256 of data and settings; each stored score belongs to one digest.
        queries: Text by id; queries without a relevant document are left out.
        corpus: Text by id, title and text joined; for reranking only the candidates.
        qrels: Query id -> document id -> grade above 0.
        candidates: Query id -> document ids to rank (rerank).
        pairs: Text pairs (sts).
        gold: Gold score of every pair.
        ignore_identical_ids: Leave the document with the query's own id out of its ranking.
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
    ignore_identical_ids: bool = False

    @property
    def items(self) -> list[str]:
        """Return the ids of the scored items: judged queries in order, or pairs by position."""
        return list(self.qrels) if self.type != "sts" else [str(index) for index in range(len(self.pairs))]

    def scores(self, values: Sequence[Sequence[float]]) -> Scores:
        """Return the values of several seeds, `(seeds, items)`, as scores."""
        if self.type != "sts":
            return Scores(np.array(values, dtype=np.float64))
        kind: Kind = "spearman" if self.metric == "spearman" else "pearson"
        return Scores(np.array(values, dtype=np.float64), np.array(self.gold), kind)


def load_task(task: Task) -> TaskData:
    """Read a task and check it.

    Args:
        task: Its settings; `path` is a folder in the Hub layout (see the how-to on your own data).

    Raises:
        MarError: The metric does not fit the type, or a file is missing or broken; the message names file and
            line.
    """
    folder = _folder(task.path)
    kind: TaskType = task.type if task.type != "auto" else _type(folder, task)
    metric = task.metric or DEFAULT_METRIC[kind]
    metrics = "pearson|spearman" if kind == "sts" else r"(ndcg|recall|p)@[1-9]\d{0,5}|map|mrr"
    if not re.fullmatch(metrics, metric, re.ASCII):
        choice = "pearson, spearman" if kind == "sts" else "ndcg@K, recall@K, p@K, map, mrr"
        raise MarError(f"task {task.name}: {metric!r} is not a metric of {kind} tasks; choose from {choice}.")
    read = _read_pairs(folder, task.split) if kind == "sts" else _read_retrieval(folder, task.split, kind)
    settings: dict[str, Any] = {"type": kind, "metric": metric, "split": task.split}
    if kind == "retrieval" and _ignores_identical_ids(folder):
        settings["ignore_identical_ids"] = read["ignore_identical_ids"] = True
    content = json.dumps([settings, read], ensure_ascii=False, sort_keys=True)
    return TaskData(task, kind, metric, hashlib.sha256(content.encode()).hexdigest(), **read)


def _ignores_identical_ids(folder: Path) -> bool:
    """Return the setting in the header of the folder's card, as `medteb run` reads it."""
    settings = card_header(folder).get("medteb")
    return isinstance(settings, dict) and settings.get("ignore_identical_ids") is True


def _folder(path: str) -> Path:
    plain = Path(path).expanduser()
    try:
        named = not path.startswith("package:") and not plain.exists() and plain.name == path
        folder = locate(PACKAGED_TASKS_PREFIX + path if named else path)
    except MarError as error:
        raise MarError(
            f"No task at {path}. Give a folder in the Hub layout, 'package:NAME/FOLDER' or the name of a "
            "packaged task such as MedTEBRetrieval."
        ) from error
    if not folder.is_dir():
        raise MarError(f"{path} is a file; a task is a folder in the Hub layout.")
    return folder


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


def _read_retrieval(folder: Path, split: str, kind: TaskType) -> dict[str, Any]:
    """Read `corpus`, `queries`, `qrels/SPLIT`; for reranking `top_ranked`, to which the corpus is cut."""
    corpus, queries = texts_by_id(folder, "corpus"), texts_by_id(folder, "queries")
    judged = read_qrels(folder / "qrels", split, queries=queries, documents=corpus)
    # Queries without a positive cannot be scored; mteb leaves them out as well.
    relevant = {query: {d: grade for d, grade in row.items() if grade > 0} for query, row in judged.items()}
    qrels = {query: row for query, row in relevant.items() if row}
    if not qrels:
        raise MarError(f"{folder}: the qrels mark no document as relevant.")
    candidates: dict[str, list[str]] = {}
    if kind == "rerank":
        listed = _candidates(folder, queries, corpus)
        missing = [query for query in qrels if query not in listed]
        if missing:
            raise MarError(f"{folder / 'top_ranked.jsonl'}: the query {missing[0]!r} has no candidates.")
        candidates = {query: listed[query] for query in qrels}
        used = {document for documents in candidates.values() for document in documents}
        corpus = {document: text for document, text in corpus.items() if document in used}
    scored = {query: queries[query] for query in qrels}
    return {"queries": scored, "corpus": corpus, "qrels": qrels, "candidates": candidates}


def _candidates(folder: Path, queries: Container[str], corpus: Container[str]) -> dict[str, list[str]]:
    candidates: dict[str, list[str]] = {}

    def make(row: Row) -> None:
        query, ids = as_id(row.values.get("query-id")), row.values.get("corpus-ids")
        if query is None or not isinstance(ids, list) or not ids:
            raise MarError("needs 'query-id' and 'corpus-ids', a list that is not empty.")
        _known(query, "query", queries)
        listed = [as_id(one) or "" for one in ids]
        for document in listed:
            _known(document, "document", corpus)
        if query in candidates or len(set(listed)) < len(listed):
            raise MarError(f"the query {query!r}, or one of its documents, is listed twice.")
        candidates[query] = listed

    for _ in read_rows(folder, make, table="top_ranked"):
        pass
    return candidates


def _known(name: str, what: str, names: Container[str]) -> None:
    if name not in names:
        raise MarError(f"there is no {what} {name!r}.")


def _read_pairs(folder: Path, split: str) -> dict[str, Any]:
    """Read the pairs of an STS task from `SPLIT.jsonl`."""

    def make(row: Row) -> tuple[tuple[str, str], float]:
        values = row.values
        first, second = as_text(values.get("sentence1")), as_text(values.get("sentence2"))
        value = as_number(values.get("score"))
        if first is None or second is None or value is None:
            raise MarError("needs 'sentence1', 'sentence2' and a finite number 'score'.")
        return (first, second), value

    rows = list(read_rows(folder, make, table=split))
    if len({value for _, value in rows}) < 2:
        raise MarError(f"{folder}: all {len(rows)} pairs have one score; a correlation needs at least two.")
    return {"pairs": [pair for pair, _ in rows], "gold": [value for _, value in rows]}


def score(model: SentenceTransformer, data: TaskData) -> list[float]:
    """Return the score of every item of a task, in the order of `data.items`.

    Args:
        model: Any sentence-transformers model; queries and documents take its routes if it has any.
        data: The task.

    Returns:
        One value per judged query (its metric), or per pair (its predicted similarity).

    Raises:
        MarError: The task asks for a prompt that the model does not have.
    """
    if data.type == "sts":
        first, second = (encode_texts(model, [p[side] for p in data.pairs], data, None) for side in (0, 1))
        return [float(value) for value in model.similarity_pairwise(first, second)]
    queries = encode_texts(model, list(data.queries.values()), data, "query")
    documents = encode_texts(model, list(data.corpus.values()), data, "document")
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
    documents = documents.to(queries.device)
    ids = list(data.corpus)
    position = {key: index for index, key in enumerate(ids)}
    cut = int(data.metric.partition("@")[2] or 1000)
    depth = min(len(ids), max(_DEPTH, cut))
    run: dict[str, dict[str, float]] = {}
    rows = list(data.queries)
    for start in range(0, len(rows), 64):
        scores = similarity(queries[start : start + 64], documents)
        for row, key in zip(scores, rows[start : start + 64], strict=True):
            if data.type == "rerank":
                columns = [position[document] for document in data.candidates[key]]
                values = row[columns].tolist()
            else:
                if data.ignore_identical_ids and key in position:
                    row[position[key]] = -math.inf
                top = row.topk(depth)
                columns, values = top.indices.tolist(), top.values.tolist()
            run[key] = {ids[index]: value for index, value in zip(columns, values, strict=True)}
    import pytrec_eval  # lazy: pytrec_eval

    name, _, k = data.metric.partition("@")
    measure = f"{_METRICS[name]}.{k}" if k else _METRICS[name]
    result = pytrec_eval.RelevanceEvaluator(data.qrels, {measure}).evaluate(run)
    return [float(result[query][measure.replace(".", "_")]) for query in data.qrels]


def encode_texts(model: SentenceTransformer, texts: Sequence[str], data: TaskData, role: Role | None) -> Any:
    """Return the vectors of texts, a float32 tensor `(texts, dim)`.

    The stored prompt is the first of `TYPE-ROLE`, `TYPE` and `ROLE`, such as `Retrieval-query`, `Retrieval`
    and `query`. If there is none of these, a model with routes gets no prompt, and any other model the one
    that sentence-transformers chooses.

    Args:
        model: Any sentence-transformers model; texts without a role take its query route if it has routes.
        texts: Queries, documents, or one side of text pairs.
        data: The task.
        role: None for text pairs.
    """
    from sentence_transformers.base.modules import Router  # lazy: sentence_transformers

    options: dict[str, Any] = {
        "batch_size": 64,
        "convert_to_tensor": True,
        "show_progress_bar": len(texts) >= _PROGRESS_TEXTS,
    }
    has_routes = any(isinstance(module, Router) for module in model.children())
    kind = _MTEB_TYPES[data.type]
    names: Sequence[str] = (kind,) if role is None else (f"{kind}-{role}", kind, role)
    stored = [str(model.prompts[name]) for name in names if name in model.prompts]
    if stored or has_routes:
        options["prompt"] = stored[0] if stored else ""
    encode: Any = model.encode
    if role == "document":
        encode = model.encode_document
    elif role == "query" or has_routes:
        encode = model.encode_query
    return encode(list(texts), **options).float()
