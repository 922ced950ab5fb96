"""Rows of a study without training: finished models, and BM25."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from mar_st.evaluation.tasks import score_run
from mar_st.mining import retrievers
from mar_st.model.digest import model_digest
from mar_st.model.native_gte import fetch
from mar_st.model.opening import open_model

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from mar_st.evaluation.tasks import TaskData
    from mar_st.study.schema import StudyRow

#: Value of a row's `model` for BM25 over character bigrams.
BM25 = "bm25"

#: Documents ranked for a query.
_DEPTH = 1000


def finished_digest(row: StudyRow) -> str:
    """Return the identity of a finished model: its files (or commit) and the prompts of the row."""
    content = retrievers.BM25().identity() if row.model == BM25 else model_digest(str(row.model))
    return hashlib.sha256(json.dumps([content, row.prompts], sort_keys=True).encode()).hexdigest()


def load_finished(row: StudyRow) -> SentenceTransformer:
    """Load the model of a row; the row's prompts replace its own of the same names.

    A model with routes is loaded as a MAR, whose query encoder may be one without a transformer.

    Raises:
        MarError: The model does not exist.
    """
    model = open_model(fetch(str(row.model))).float()
    model.prompts = {**model.prompts, **row.prompts}
    return model


def score_bm25(data: TaskData) -> list[float]:
    """Score every item of a task with BM25; for a pair, score its second text for its first.

    Args:
        data: The task. The corpus of a pair task consists of its second texts.
    """
    retriever = retrievers.BM25()
    if data.type == "sts":
        first, second = zip(*data.pairs, strict=True)
        retriever.prepare(first, second)
        return [float(retriever.score([row], [[row]])[0][0]) for row in range(len(first))]  # type: ignore[list-item]
    ids = list(data.corpus)
    place = {key: index for index, key in enumerate(ids)}
    retriever.prepare(list(data.queries.values()), list(data.corpus.values()))
    run = {}
    for row, query in enumerate(data.queries):
        if data.type == "rerank":
            rows = [place[key] for key in data.candidates[query]]
            values = retriever.score([row], [rows])[0].tolist()  # type: ignore[list-item]
        else:
            hits = retriever.search([row], min(_DEPTH, len(ids)), [[]])  # type: ignore[list-item]
            is_hit = hits.documents[0] >= 0
            rows, values = hits.documents[0][is_hit].tolist(), hits.scores[0][is_hit].tolist()
        run[query] = {ids[index]: value for index, value in zip(rows, values, strict=True)}
    return score_run(run, data)
