"""Retrieval quality of queries, with the original encoder and with a variant."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mar_st.export.graph import ExportError
from mar_st.model.opening import open_model

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Documents that are ranked per query.
_DEPTH = 100

#: Documents that are sorted by length together while they are encoded.
_WINDOW_TEXTS = 2048


@dataclass(frozen=True)
class LossTask:
    """A retrieval task with the vectors of its documents.

    Attributes:
        name: Name of the task.
        digest: Digest of its data.
        ids: Ids of the documents.
        documents: Their vectors, `(documents, dim)` float32.
        queries: Text of each query.
        qrels: Grades by query and document.
        cosine: Whether scores are cosines; otherwise they are dot products.
    """

    name: str
    digest: str
    ids: Sequence[str]
    documents: np.ndarray
    queries: dict[str, str]
    qrels: dict[str, dict[str, int]]
    cosine: bool

    def ndcg(self, vectors: np.ndarray) -> float:
        """Return the mean nDCG@10 of vectors of the queries, in their order."""
        import pytrec_eval  # lazy: pytrec_eval

        vectors = _unit(vectors) if self.cosine else vectors
        depth = min(_DEPTH, len(self.ids))
        run: dict[str, dict[str, float]] = {}
        keys = list(self.queries)
        for start in range(0, len(keys), 256):
            scores = vectors[start : start + 256] @ self.documents.T
            best = np.argpartition(-scores, depth - 1, axis=1)[:, :depth]
            for row, (key, rows) in enumerate(zip(keys[start : start + 256], best, strict=True)):
                run[key] = {self.ids[index]: float(scores[row, index]) for index in rows}
        measured = pytrec_eval.RelevanceEvaluator(self.qrels, {"ndcg_cut.10"}).evaluate(run)
        return float(np.mean([entry["ndcg_cut_10"] for entry in measured.values()]))


def open_judge(
    task: str, model: str, *, split: str = "test", vectors: str | Path | None = None, cosine: bool
) -> LossTask:
    """Read a task, and read or compute the vectors of its documents.

    Args:
        task: Folder in the Hub layout (`corpus.jsonl`, `queries.jsonl`, `qrels`), or a packaged task.
        model: The exported model; its document side encodes the documents unless vectors are given.
        split: Split of the qrels.
        vectors: A folder that `mar encode` wrote, with a vector of every document.
        cosine: Whether scores are cosines.

    Raises:
        MarError: A file of the task is missing or broken.
        ExportError: The folder of vectors lacks documents.
    """
    from mar_st.evaluation.scored_set import Task  # lazy: pydantic
    from mar_st.evaluation.tasks import load_task  # lazy: transformers

    data = load_task(Task(name="task", path=str(task), split=split))
    if data.type != "retrieval":
        raise ExportError(f"{task} is a task of type {data.type}; give a retrieval task.")
    ids = list(data.corpus)
    documents = _encoded(model, list(data.corpus.values())) if vectors is None else _stored(vectors, ids)
    return LossTask(
        name=Path(task).name,
        digest=data.digest,
        ids=ids,
        documents=_unit(documents) if cosine else documents,
        queries=dict(data.queries),
        qrels=data.qrels,
        cosine=cosine,
    )


def _unit(vectors: np.ndarray) -> np.ndarray:
    scaled: np.ndarray = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return scaled


def _encoded(model: str, texts: list[str]) -> np.ndarray:
    from mar_st.encode.engine import Engine  # lazy: sentence_transformers

    engine = Engine(open_model(model, routes="document"), "document")
    return engine.encode(texts, window=_WINDOW_TEXTS, show_progress=True)


def _stored(folder: str | Path, ids: list[str]) -> np.ndarray:
    from mar_st.encode.folder import VectorFolder  # lazy: pyarrow

    stored = VectorFolder.open(folder)
    place = {key: row for row, key in enumerate(stored.ids.to_pylist())}
    missing = [key for key in ids if key not in place]
    if missing:
        raise ExportError(
            f"{len(missing)} of {len(ids)} documents of the task have no vector in {folder} (the first is "
            f"{missing[0]!r}). Encode the task's corpus with `mar encode`."
        )
    return stored[[place[key] for key in ids]]
