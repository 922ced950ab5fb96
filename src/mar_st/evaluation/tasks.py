"""Evaluator of task folders that keeps the score of every query or pair, for intervals and paired tests.

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

from mar_st.data import DataError, locate
from mar_st.evaluation.encoding import encode_texts
from mar_st.evaluation.scored_set import TaskError
from mar_st.evaluation.statistics import Scores
from mar_st.files.reading import NotUtf8Error, one_line, utf8_lines
from mar_st.text.texts import join_document

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

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
        DataError: A file is missing or broken; the message names file and line.
    """
    folder = _folder(task.path)
    kind: TaskType = task.type if task.type != "auto" else _type(folder, task)
    metric = task.metric or DEFAULT_METRIC[kind]
    _check_metric(metric, kind, task.name)
    settings = {"type": kind, "metric": metric, "split": task.split, "prompt": task.prompt}
    read: dict[str, Any] = _read_sts(folder, task) if kind == "sts" else _read_retrieval(folder, task, kind)
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
        raise TaskError(f"task {name}: {metric!r} is not a metric of a {kind} task; choose from {choice}.")


# -- reading --


def _folder(path: str) -> Path:
    plain = Path(path).expanduser()
    if path.startswith("package:") or (not plain.exists() and plain.name == path):
        try:
            return locate(path if path.startswith("package:") else PACKAGED_TASKS_PREFIX + path)
        except DataError as error:
            raise _no_task(path) from error
    if not plain.is_dir():
        raise _no_task(path)
    return plain


def _no_task(path: str) -> DataError:
    return DataError(
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
    raise DataError(
        f"{folder} is not a task: it has neither corpus.jsonl (retrieval) nor {task.split}.jsonl (STS)."
    )


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file that are not empty, each with its number."""
    if not path.is_file():
        raise DataError(f"{path} is missing.")
    try:
        yield from ((number, line) for number, line in utf8_lines(path) if line.strip())
    except NotUtf8Error as error:
        raise DataError(str(error)) from error


def _rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects of a JSONL file, each with its place."""
    for number, line in _lines(path):
        try:
            row = json.loads(line)
            if "\\u" in line:
                json.dumps(row, ensure_ascii=False).encode()  # fails on half of a surrogate pair
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}:{number}: not a JSON object ({one_line(error)}).") from error
        if not isinstance(row, dict):
            raise DataError(f"{path}:{number}: expected a JSON object, got {type(row).__name__}.")
        yield f"{path}:{number}", row


def _texts(path: Path) -> dict[str, str]:
    texts: dict[str, str] = {}
    for place, row in _rows(path):
        key = str(row.get("_id", row.get("id", "")))
        if not key or "text" not in row:
            raise DataError(f"{place}: needs '_id' and 'text'; has {sorted(row)}.")
        if not isinstance(row["text"], str) or not isinstance(row.get("title") or "", str):
            raise DataError(f"{place}: 'text' and 'title' are strings.")
        if key in texts:
            raise DataError(f"{place}: the id {key!r} occurs twice.")
        texts[key] = join_document(row)
    return texts


def _qrels(folder: Path, split: str) -> Iterator[tuple[str, str, str, int]]:
    path = folder / "qrels" / f"{split}.tsv"
    if not path.is_file() and path.with_suffix(".jsonl").is_file():
        for place, row in _rows(path.with_suffix(".jsonl")):
            try:
                yield place, str(row["query-id"]), str(row["corpus-id"]), _grade(row["score"])
            except (KeyError, TypeError, ValueError, OverflowError) as error:
                raise DataError(
                    f"{place}: needs 'query-id', 'corpus-id' and 'score', a whole number."
                ) from error
        return
    for number, line in _lines(path):
        cells = line.split("\t")
        if number == 1 and cells[0] == "query-id":
            continue
        try:
            query, document, grade = cells
            yield f"{path}:{number}", query, document, _grade(grade)
        except (ValueError, OverflowError) as error:
            raise DataError(
                f"{path}:{number}: needs query-id, corpus-id and score, a whole number; has {line!r}."
            ) from error


def _grade(value: Any) -> int:
    """Return a whole number, also of `2.0`, as data frames write it; raise ValueError for any other."""
    grade = int(float(value))
    if grade != float(value):
        raise ValueError("not a whole number")
    return grade


def _read_retrieval(folder: Path, task: Task, kind: TaskType) -> dict[str, Any]:
    corpus, queries = _texts(folder / "corpus.jsonl"), _texts(folder / "queries.jsonl")
    qrels: dict[str, dict[str, int]] = {}
    for place, query, document, grade in _qrels(folder, task.split):
        for what, key, known in (("query", query, queries), ("document", document, corpus)):
            if key not in known:
                raise DataError(f"{place}: there is no {what} {key!r}.")
        if grade > 0:
            qrels.setdefault(query, {})[document] = grade
    if not qrels:
        raise DataError(f"{folder}: the qrels mark no document as relevant.")
    # Queries without a positive cannot be scored; mteb leaves them out as well.
    queries = {key: queries[key] for key in qrels}
    candidates: dict[str, list[str]] = {}
    if kind == "rerank":
        for place, row in _rows(folder / "top_ranked.jsonl"):
            ids = row.get("corpus-ids", [])
            if not isinstance(ids, list):
                raise DataError(f"{place}: 'corpus-ids' is a list; got {type(ids).__name__}.")
            listed = [str(key) for key in ids]
            unknown = [key for key in listed if key not in corpus]
            if unknown or not listed:
                reason = f"there is no document {unknown[0]!r}" if unknown else "no candidates"
                raise DataError(f"{place}: {reason}.")
            candidates[str(row.get("query-id"))] = listed
        missing = [key for key in queries if key not in candidates]
        if missing:
            raise DataError(f"{folder / 'top_ranked.jsonl'}: the query {missing[0]!r} has no candidates.")
        candidates = {key: candidates[key] for key in queries}
        used = {document for listed in candidates.values() for document in listed}
        corpus = {key: text for key, text in corpus.items() if key in used}
    return {"queries": queries, "corpus": corpus, "qrels": qrels, "candidates": candidates}


def _read_sts(folder: Path, task: Task) -> dict[str, Any]:
    pairs, gold = [], []
    for place, row in _rows(folder / f"{task.split}.jsonl"):
        first, second, value = row.get("sentence1"), row.get("sentence2"), row.get("score", row.get("label"))
        if not first or not second or not isinstance(value, int | float) or not math.isfinite(value):
            raise DataError(f"{place}: needs 'sentence1', 'sentence2' and a finite number 'score'.")
        pairs.append((str(first), str(second)))
        gold.append(float(value))
    if len(set(gold)) < 2:
        raise DataError(f"{folder}: all {len(gold)} pairs have one score; a correlation needs at least two.")
    return {"pairs": pairs, "gold": gold}
