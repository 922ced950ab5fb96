"""Near-duplicate queries, their clusters, and a split into test and training that shares none."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mar_st.text.texts import normalise
from medteb_mteb.curation.step import SEED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

#: Jaccard similarity of character 1- and 2-grams from which two queries count as near-duplicates: queries
#: that differ by a particle do (.67), the same sentence with another disease does not (.38).
QUERY_SIMILARITY = 0.6

#: Rows of a block of the similarity matrix.
TEXTS_PER_BLOCK = 1000


def near_duplicates(
    left: Sequence[str], right: Sequence[str] | None = None, *, threshold: float = QUERY_SIMILARITY
) -> Iterator[tuple[int, int, float]]:
    """Return all pairs of texts whose character n-grams overlap; exact, not sampled.

    Args:
        left: Texts.
        right: Other texts; default `left`, each pair once.
        threshold: Jaccard similarity of the sets of 1- and 2-grams of the normalised texts.

    Yields:
        Row in `left`, row in `right`, similarity; in order of the rows.
    """
    other = left if right is None else right
    if not left or not other:
        return
    from sklearn.feature_extraction.text import CountVectorizer  # lazy: sklearn

    counter = CountVectorizer(analyzer=_grams, dtype=np.float32)
    others = counter.fit_transform(other)
    transposed, other_sizes = others.T.tocsr(), _sizes(other)
    for start in range(0, len(left), TEXTS_PER_BLOCK):
        part = left[start : start + TEXTS_PER_BLOCK]
        block, sizes = counter.transform(part), _sizes(part)
        shared = (block @ transposed).tocoo()
        rows, columns = shared.row + start, shared.col
        similarity = shared.data / (sizes[shared.row] + other_sizes[columns] - shared.data)
        kept = similarity >= threshold
        if right is None:
            kept &= rows < columns
        order = np.lexsort((columns[kept], rows[kept]))
        pairs = zip(rows[kept][order], columns[kept][order], similarity[kept][order], strict=True)
        yield from ((int(row), int(column), float(value)) for row, column, value in pairs)


def clusters(texts: Sequence[str], *, threshold: float = QUERY_SIMILARITY) -> list[list[int]]:
    """Return clusters of texts that are near-duplicates, directly or through others.

    Returns:
        Rows of each cluster, ascending; clusters are in the order of their first rows.
    """
    from scipy.sparse import coo_array  # lazy: scipy
    from scipy.sparse.csgraph import connected_components  # lazy: scipy

    if not texts:
        return []
    pairs = [(first, second) for first, second, _ in near_duplicates(texts, threshold=threshold)]
    rows, columns = np.array(pairs, dtype=int).reshape(-1, 2).T
    graph = coo_array((np.ones(len(pairs)), (rows, columns)), (len(texts), len(texts)))
    _, labels = connected_components(graph, directed=False)
    groups: dict[int, list[int]] = {}
    for row, label in enumerate(labels.tolist()):
        groups.setdefault(label, []).append(row)
    return list(groups.values())


@dataclass(frozen=True)
class Split:
    """Queries of a test and of training.

    Attributes:
        test: Ids of the test, in the given order.
        train: Ids of training, in the given order.
        clusters: Number of clusters of near-duplicates, single queries included.
        largest: Number of queries of the largest cluster.
    """

    test: list[str]
    train: list[str]
    clusters: int
    largest: int


def split_queries(queries: Mapping[str, str], test: float, *, threshold: float = QUERY_SIMILARITY) -> Split:
    """Put whole clusters of near-duplicate queries on one side.

    Clusters are drawn, always the same, and go to the test as long as they fit.

    Args:
        queries: Text by id.
        test: Maximum number of test queries, or their share if below 1; 1 or more of all there are takes all.
        threshold: See `near_duplicates`.
    """
    ids, texts = list(queries), list(queries.values())
    groups = clusters(texts, threshold=threshold)
    wanted = round(test * len(ids)) if test < 1 else int(test)
    drawn = groups[:]
    random.Random(SEED).shuffle(drawn)
    chosen: set[int] = set()
    for group in drawn:
        if len(chosen) + len(group) <= wanted:
            chosen.update(group)
    return Split(
        [name for row, name in enumerate(ids) if row in chosen],
        [name for row, name in enumerate(ids) if row not in chosen],
        len(groups),
        max(map(len, groups), default=0),
    )


def _grams(text: str) -> set[str]:
    """Return the 1- and 2-grams of a text; one of symbols only is compared unchanged."""
    plain = normalise(text) or text
    return {*plain, *(plain[i : i + 2] for i in range(len(plain) - 1))}


def _sizes(texts: Sequence[str]) -> np.ndarray:
    return np.array([len(_grams(text)) for text in texts], dtype=np.float32)
