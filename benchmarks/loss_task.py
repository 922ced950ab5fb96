"""Retrieval quality of queries, with the original encoder and with a variant."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sentence_transformers import util

from mar_st.errors import MarError
from mar_st.evaluation.tasks import Task, load_task, score_vectors
from mar_st.model.mar import open_model

if TYPE_CHECKING:
    from mar_st.evaluation.tasks import TaskData


@dataclass(frozen=True)
class LossTask:
    """A retrieval task with the vectors of its documents.

    Attributes:
        data: The task.
        documents: Vectors of its documents, `(documents, dim)` float32.
    """

    data: TaskData
    documents: np.ndarray

    @property
    def queries(self) -> list[str]:
        """Return the texts of the queries."""
        return list(self.data.queries.values())

    def ndcg(self, vectors: np.ndarray) -> float:
        """Return the mean nDCG@10 of vectors of the queries, in their order; scores are cosines."""
        pair = torch.from_numpy(np.asarray(vectors, np.float32)), torch.from_numpy(self.documents)
        return float(np.mean(score_vectors(self.data, *pair, util.cos_sim)))

    def report(self, vectors: np.ndarray) -> dict[str, Any]:
        """Return the description of the task and the score of vectors."""
        return {
            "name": Path(self.data.task.path).name,
            "digest": self.data.digest,
            "queries": len(self.data.queries),
            "documents": len(self.data.corpus),
            "ndcg@10": round(self.ndcg(vectors), 5),
        }


def open_judge(task: str, model: str, *, split: str = "test", vectors: str | Path | None = None) -> LossTask:
    """Read a task, and read or compute the vectors of its documents.

    Args:
        task: Folder in the Hub layout (`corpus.jsonl`, `queries.jsonl`, `qrels`), or a packaged task.
        model: The exported model; its document side encodes the documents unless vectors are given.
        split: Split of the qrels.
        vectors: A folder that `mar encode` wrote, with a vector of every document.

    Raises:
        MarError: A file of the task is missing or broken, or the folder of vectors lacks documents.
    """
    wanted = Task(name="task", path=str(task), split=split, type="retrieval", metric="ndcg@10")
    data = load_task(wanted)
    if vectors is not None:
        return LossTask(data, stored_vectors(vectors, list(data.corpus)))
    from mar_st.encode.engine import Engine  # lazy: sentence_transformers

    engine = Engine(open_model(model, routes="document"), "document")
    return LossTask(data, engine.encode(list(data.corpus.values()), show_progress=True))


def stored_vectors(folder: str | Path, ids: list[str]) -> np.ndarray:
    """Return the vectors of documents from a folder that `mar encode` wrote, in the order of their ids.

    Raises:
        MarError: A document has no vector.
    """
    from mar_st.encode.folder import VectorFolder  # lazy: pyarrow

    stored = VectorFolder.open(folder)
    place = {key: row for row, key in enumerate(stored.ids.to_pylist())}
    missing = [key for key in ids if key not in place]
    if missing or not ids:
        raise MarError(
            f"{len(missing)} of {len(ids)} documents have no vector in {folder} (the first is "
            f"{missing[:1]}). Encode this corpus with `mar encode`."
        )
    return np.asarray(stored[[place[key] for key in ids]], dtype=np.float32)
