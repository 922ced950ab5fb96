"""Stage II of a query encoder alone: labelled queries against all documents of a frozen space."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import torch

from mar_st.data.columns import dataset_of
from mar_st.data.sequences import Triples, numbered
from mar_st.losses.corpus import CorpusLoss
from mar_st.stages.fit import fit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mar_st.data.sequences import Triple
    from mar_st.encode.vectors import Vectors
    from mar_st.model.mar import MAR
    from mar_st.recipes.schema import AlignStage, Side
    from mar_st.stages.trainer import StageSettings


def train_on_corpus(
    model: MAR,
    triples: Sequence[Triple],
    others: Sequence[str],
    vectors_of: Callable[[Sequence[str], Side], Vectors],
    stage: AlignStage,
    settings: StageSettings,
    *,
    prompt: str = "",
) -> None:
    """Train the query route in place with `CorpusLoss`; a query counts once, whatever its number of rows.

    Args:
        model: A MAR whose query route gives vectors of length 1; other routes are not changed.
        triples: Queries with documents that answer them. Hard negatives are documents like others.
        others: Further documents.
        vectors_of: Returns the vectors that the teacher gives texts of a role.
        stage: Hyperparameters.
        settings: Run folder, seed, precision.
        prompt: Prompt before queries, for the query encoder.
    """
    table = Triples.of(triples)
    queries, (query_of,) = numbered(table.queries)
    documents, (document_of, _) = numbered(table.documents, others)
    pairs = np.stack([query_of[table.owners], document_of], axis=1)[table.is_positive]
    loss = CorpusLoss(
        model,
        queries=torch.from_numpy(vectors_of(queries, "query")[:]),
        documents=torch.from_numpy(vectors_of(documents, "document")[:]),
        answers=_padded(np.unique(pairs, axis=0)),
        temperature=stage.temperature,
    )
    rows = pa.table({"query": pa.chunked_array(list(queries.blocks())), "label": np.arange(len(queries))})
    fit(
        model,
        {"pairs": dataset_of(rows)},
        loss,
        stage,
        settings,
        prompts={"pairs": {"query": prompt} if prompt else {}},
        router_mapping={"pairs": {"query": "query"}},
    )


def _padded(pairs: np.ndarray) -> torch.Tensor:
    """Return the second numbers of sorted pairs `(n, 2)` by the first, one row each, filled up with -1."""
    counts = np.bincount(pairs[:, 0])
    table = np.full((len(counts), counts.max()), -1)
    table[np.arange(counts.max()) < counts[:, None]] = pairs[:, 1]
    return torch.from_numpy(table)
