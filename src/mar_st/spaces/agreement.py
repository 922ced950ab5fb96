"""Agreement of a query encoder with its teacher: cosine of the vectors, overlap of the results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

from mar_st.evaluation.statistics import Scores, bootstrap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mar_st.teachers.vectors import Vectors

#: Maximum documents that are ranked.
MAX_DOCUMENTS = 100_000
#: Rows of the corpus that are scored at a time.
BLOCK = 8192
#: Resamples of the bootstrap.
RESAMPLES = 2000


def mean_cosine(one: np.ndarray, other: np.ndarray) -> float:
    """Return the mean cosine of two vectors per text, both arrays `(n, dim)`."""
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return float(np.mean((one * other).sum(axis=1) / np.maximum(lengths, 1e-12)))


def ranked(queries: np.ndarray, corpus: Vectors, own: Sequence[int] | None, *, top: int = 10) -> np.ndarray:
    """Return the rows of the highest inner products for each query, `(queries, top)`, best first.

    Args:
        queries: Query vectors, `(n, dim)`.
        corpus: Document vectors, read block by block.
        own: For each query, the corpus row to exclude because it is the query itself; -1: none.
        top: Rows per query; fewer if the corpus is smaller.
    """
    excluded = np.full(len(queries), -1) if own is None else np.asarray(own)
    top = min(top, len(corpus) - (own is not None))
    best = np.empty((len(queries), 0), dtype=np.float32)
    rows = np.empty((len(queries), 0), dtype=np.int64)
    for start in tqdm(range(0, len(corpus), BLOCK), desc="ranking", unit="blocks", disable=None, leave=False):
        scores = queries @ corpus[start : start + BLOCK].T
        here = np.arange(start, start + scores.shape[1])
        scores[excluded[:, None] == here[None]] = -np.inf
        best = np.concatenate([best, scores], axis=1)
        rows = np.concatenate([rows, np.broadcast_to(here, scores.shape)], axis=1)
        # Stable, so that the first of equally scored documents wins, whatever the block size.
        order = np.argsort(-best, axis=1, kind="stable")[:, :top]
        best, rows = np.take_along_axis(best, order, axis=1), np.take_along_axis(rows, order, axis=1)
    return rows


def overlaps(
    students: np.ndarray, teachers: np.ndarray, corpus: Vectors, own: Sequence[int] | None, *, top: int = 10
) -> np.ndarray:
    """Return the share of the teacher's `top` documents in the student's `top`, `(queries,)` float64."""
    first, second = (ranked(vectors, corpus, own, top=top) for vectors in (students, teachers))
    return np.array([len(set(a) & set(b)) / len(b) for a, b in zip(first, second, strict=True)])


def interval(values: np.ndarray, *, seed: int) -> list[float]:
    """Return the 95 % bootstrap interval of a mean over queries."""
    drawn = bootstrap(Scores(values[None]), resamples=RESAMPLES, seed=[seed])
    return [round(float(bound), 4) for bound in np.quantile(drawn, (0.025, 0.975))]


def agreement(
    encoded: dict[str, np.ndarray],
    taught: dict[str, np.ndarray],
    corpus: Vectors | None,
    own: Sequence[int] | None,
    *,
    seed: int,
) -> dict[str, Any]:
    """Measure the agreement on held-out texts.

    Args:
        encoded: The student's vectors of held-out texts by role (`query`, `document`), `(n, dim)` each.
        taught: The teacher's vectors of the same texts.
        corpus: Vectors of the documents to retrieve from; `None` leaves retrieval out.
        own: Corpus rows of the held-out documents; these are the queries if there are no others.
        seed: Seed of the sample of a corpus of more than 100,000 documents.

    Returns:
        Mean cosine by role (`cosine_query`, `cosine_document`), `overlap_at_10` with its 95 %
        interval over the queries, and the counts.
    """
    report: dict[str, Any] = {}
    for role, vectors in encoded.items():
        if len(vectors):
            report[f"cosine_{role}"] = round(mean_cosine(vectors, taught[role]), 4)
            report[f"held_out_{role}"] = len(vectors)
    if corpus is None or len(corpus) < 2:
        return report
    role = "query" if len(encoded.get("query", ())) else "document"
    if len(corpus) > MAX_DOCUMENTS:
        kept = np.sort(np.random.default_rng(seed).choice(len(corpus), MAX_DOCUMENTS, replace=False))
        places = {int(row): place for place, row in enumerate(kept)}
        own = [places.get(int(row), -1) for row in own or ()]
        corpus = corpus.select(kept)
    if len(encoded.get(role, ())):
        rows = own if role == "document" else None
        shares = overlaps(encoded[role], taught[role], corpus, rows)
        report["overlap_at_10"] = round(float(shares.mean()), 4)
        report["overlap_interval"] = interval(shares, seed=seed)
        report["overlap_queries"] = "held-out queries" if role == "query" else "held-out documents"
        report["overlap_corpus"] = len(corpus)
    return report
