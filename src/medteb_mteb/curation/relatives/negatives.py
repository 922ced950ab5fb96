"""Hard negatives as in English MedTEB: one of the texts nearest to the positive, drawn at random."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np

from mar_st.text.bm25 import BM25Index

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

__all__ = ["MODEL", "hard_negatives"]

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
SEED = 42
#: Texts whose similarities to all texts are computed at once.
_BATCH_ROWS = 512


def hard_negatives(
    texts: Sequence[str], top: int, by: str, groups: Sequence[str] | None = None
) -> list[int | None]:
    """Return the index of a hard negative for every text; None if there is no other text.

    Args:
        texts: The positives. Equal texts are never negatives of each other.
        top: Number of nearest texts from which the negative is drawn, with seed 42; from all other texts if
            the nearest ones are excluded.
        by: `all-MiniLM-L6-v2`, the authors' model, from the Hub; or `bm25`.
        groups: Group of each text; texts of one group are never negatives of each other. None: no groups.
    """
    draw = random.Random(SEED)
    negatives: list[int | None] = []
    # Texts of the same group are skipped; four times `top` neighbours hold `top` texts of other groups unless
    # most of the neighbours are in the text's own group.
    depth = (2 if groups is None else 4) * top + 1
    ranked = _nearest_by_words(texts, depth) if by == "bm25" else _nearest(texts, depth)
    for place, nearest in enumerate(ranked):
        others = [
            int(i)
            for i in nearest
            if i != place and texts[i] != texts[place] and (groups is None or groups[i] != groups[place])
        ][:top]
        if not others:  # all near texts are of the same group: any text of another group
            others = [
                i
                for i, text in enumerate(texts)
                if text != texts[place] and (groups is None or groups[i] != groups[place])
            ]
        negatives.append(draw.choice(others) if others else None)
    return negatives


def _nearest(texts: Sequence[str], depth: int) -> Iterator[NDArray[np.int64]]:
    """Yield the indices of the nearest texts for every text, itself included."""
    vectors = _encode(texts)
    for first in range(0, len(texts), _BATCH_ROWS):
        similar = vectors[first : first + _BATCH_ROWS] @ vectors.T
        yield from np.argsort(-similar, axis=1, kind="stable")[:, :depth]


def _encode(texts: Sequence[str]) -> NDArray[np.float32]:
    from sentence_transformers import SentenceTransformer  # lazy: sentence_transformers

    vectors: Any = SentenceTransformer(MODEL).encode(list(texts), normalize_embeddings=True)
    return np.asarray(vectors, np.float32)


def _nearest_by_words(texts: Sequence[str], depth: int) -> Iterator[NDArray[np.int64]]:
    import bm25s  # lazy: bm25s

    tokens = bm25s.tokenize(list(texts), stopwords="en", return_ids=False, show_progress=False)
    index = BM25Index(tokens, k1=1.5)
    for query in tokens:
        yield np.argsort(-index.scores(query), kind="stable")[:depth]
