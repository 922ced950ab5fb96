"""BM25 on disk: a mapped matrix of scores per segment, with the formula and tokens of `mar_st.text`.

Each segment has scores with its own idf. Where there are several, the weight of a word comes from all of them
together: idf is a factor of every score of a word, so it is exchanged when a query is answered. Lengths are
compared with the mean of the segment, and deleted documents count in the statistics until it is built again.
"""

from __future__ import annotations

import math
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
from tqdm import tqdm

from mar_st.files import load_array, read_json, write_json
from mar_st.index import flat
from mar_st.index.documents import Documents
from mar_st.text.words import COLUMNS, BM25Index
from mar_st.text.words import words as words_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from mar_st.index.flat import Mask

BM25 = "bm25"

#: Maximum number of different words of a query (as many as Lucene's clauses), and of its characters.
MAX_QUERY_WORDS, MAX_QUERY_CHARACTERS = 1024, 16 * 1024


def build_words(folder: Path, *, progress: bool) -> None:
    """Write the BM25 scores of a segment, whose documents are in the folder."""
    documents = Documents(folder)
    texts = tqdm(documents.texts(), total=len(documents), desc="bm25", unit="documents", disable=not progress)
    words, arrays = BM25Index(map(words_of, texts)).columns()
    part = folder / BM25
    part.mkdir(exist_ok=True)
    for name, array in arrays.items():
        np.save(part / f"{name}.npy", array)
    write_json(part / "words.json", words, indent=None)


class SegmentWords:
    """BM25 scores of one segment, mapped into memory.

    Args:
        folder: The segment's folder.
        count: Number of its documents.
    """

    def __init__(self, folder: Path, count: int) -> None:
        self.count = count
        self.scores, self.rows, self.starts = (
            load_array(folder / BM25 / f"{name}.npy", mapped=True).view(np.ndarray) for name in COLUMNS
        )
        self.vocabulary = {word: place for place, word in enumerate(read_json(folder / BM25 / "words.json"))}

    def columns(self, word: str) -> slice | None:
        """Return the places of a word's scores; `None` if no document holds it."""
        place = self.vocabulary.get(word)
        return None if place is None else slice(int(self.starts[place]), int(self.starts[place + 1]))


def search_words(
    segments: Sequence[SegmentWords], text: str, k: int, masks: Sequence[Mask | None]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the best `k` documents for a text, only documents that share a word with it.

    Only the first `MAX_QUERY_CHARACTERS` characters, and the first `MAX_QUERY_WORDS` different words in them,
    are used.

    Args:
        segments: The segments of the index.
        text: The query.
        k: Documents to return.
        masks: For each segment the rows that may be found; `None`: all.

    Returns:
        Scores, float32, and rows counted over all segments, int64, `(1, k)`; -inf and -1 where there are
        fewer.
    """
    counts = Counter(words_of(text[:MAX_QUERY_CHARACTERS]))
    words = {
        word: (occurrences, [segment.columns(word) for segment in segments])
        for word, occurrences in islice(counts.items(), MAX_QUERY_WORDS)
    }
    total = sum(segment.count for segment in segments)
    best, first = [], 0
    for number, (segment, mask) in enumerate(zip(segments, masks, strict=True)):
        sums = np.zeros(segment.count, dtype=np.float32)
        for occurrences, columns in words.values():
            here = columns[number]
            if here is None:
                continue
            weight = float(occurrences)
            if len(segments) > 1:
                frequency = sum(one.stop - one.start for one in columns if one is not None)
                weight *= _idf(total, frequency) / _idf(segment.count, here.stop - here.start)
            sums[segment.rows[here]] += segment.scores[here] * np.float32(weight)  # a document occurs once
        if mask is not None:
            sums[~mask.flags()] = 0
        rows = np.flatnonzero(sums > 0)
        values = sums[rows]
        if len(rows) > k:
            edge = np.partition(values, len(rows) - k)[len(rows) - k]
            rows, values = rows[values >= edge], values[values >= edge]
        best.append(flat.top(values[None], rows[None] + first, k))
        first += segment.count
    return flat.merge(best, k)


def _idf(count: int, frequency: int) -> float:
    return math.log(1 + (count - frequency + 0.5) / (frequency + 0.5))
