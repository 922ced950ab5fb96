"""Detection of equal texts by digests: sixteen bytes for each text in memory instead of the text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import xxhash

from mar_st.data.sequences import Texts, Triples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mar_st.data.records import Triple


def distinct(*parts: Sequence[str]) -> Texts:
    """Return the texts of some sequences, each once, in the order of their first occurrence."""
    texts = Texts.joined(parts)
    firsts = np.flatnonzero(_firsts(texts) == np.arange(len(texts)))
    return texts if len(firsts) == len(texts) else texts.select(firsts)


def numbered(*parts: Sequence[str]) -> tuple[Texts, list[np.ndarray]]:
    """Return the distinct texts of some sequences, and for each sequence the numbers of its texts."""
    texts = Texts.joined(parts)
    firsts = _firsts(texts)
    new = firsts == np.arange(len(texts))
    places = (np.cumsum(new) - 1)[firsts]
    ends = np.cumsum([len(part) for part in parts])
    return texts.select(np.flatnonzero(new)), np.split(places, ends[:-1])


def distinct_texts(triples: Sequence[Triple]) -> tuple[Texts, Texts]:
    """Return all distinct queries and all distinct documents of the data, in order of first occurrence."""
    table = Triples.of(triples)
    return distinct(table.queries), distinct(table.documents)


def digests(texts: Sequence[str]) -> np.ndarray:
    """128 bits of each text, `(n, 2)` uint64: equal ones for equal texts."""
    whole = Texts.of(texts)
    if whole.rows is not None and len(whole.rows) > whole.stored // 8:
        selected: np.ndarray = digests(Texts(whole.chunks))[whole.rows]  # reading all in order is faster
        return selected
    digest = xxhash.xxh3_128_digest
    parts = [
        b"".join(digest(text or b"") for text in block.cast(pa.binary()).to_pylist())
        for block in whole.blocks()
    ]
    return np.frombuffer(b"".join(parts), dtype=np.uint64).reshape(-1, 2)


def _firsts(texts: Texts) -> np.ndarray:
    """Return for each text the row of the first one that equals it, `(n,)` int64."""
    low, high = digests(texts).T
    order = np.argsort(low, kind="stable")
    new = np.ones(len(order), dtype=bool)
    new[1:] = low[order[1:]] != low[order[:-1]]
    leaders = order[np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))]
    firsts = np.empty_like(order)
    # Only half of the digest is equal, a rare collision: the texts differ.
    firsts[order] = np.where(high[order] == high[leaders], leaders, order)
    return firsts
