"""BM25 on disk: a mapped matrix of scores per segment, with the formula and tokens of `mar_st.text`.

Each segment has scores with its own idf. Where there are several, the weight of a word comes from all of them
together: idf is a factor of every score of a word, so it is exchanged when a query is answered. Lengths are
compared with the mean of the first segment, and deleted documents count in the statistics until the index is
compacted, as in Lucene.
"""

from __future__ import annotations

import math
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context
from typing import TYPE_CHECKING

import numpy as np
from tqdm import tqdm

from mar_st.errors import MarError
from mar_st.files import load_array, read_json, write_json
from mar_st.index import flat
from mar_st.index.documents import Documents
from mar_st.kernels.processor import processors
from mar_st.text.bm25 import K1, B
from mar_st.text.words import words as words_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from mar_st.index.flat import Mask

BM25 = "bm25"

#: Maximum number of different words of a query (as many as Lucene's clauses), and of its characters.
MAX_QUERY_WORDS, MAX_QUERY_CHARACTERS = 1024, 16 * 1024

#: Documents whose words are cut at once by one process, and the minimum for several processes.
_CHUNK, _MIN_PARALLEL = 16_384, 65_536


def build_words(folder: Path, *, mean_length: float | None = None, progress: bool) -> float:
    """Write the BM25 scores of a segment.

    Args:
        folder: The segment's folder, with its documents.
        mean_length: Mean number of words per document; default that of these documents.
        progress: Show a progress bar.

    Returns:
        Mean number of words per document.
    """
    count = len(Documents(folder))
    starts = range(0, count, _CHUNK)
    vocabulary: dict[str, int] = {}
    parts: list[tuple[np.ndarray, ...]] = []
    workers = min(processors(), len(starts)) if count >= _MIN_PARALLEL else 1
    with (
        ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool,
        tqdm(total=count, desc="bm25", unit="documents", disable=not progress) as bar,
    ):
        chunks = (map if workers == 1 else pool.map)(
            _counted, [folder] * len(starts), starts, [start + _CHUNK for start in starts]
        )
        for start, (distinct, words, rows, occurrences, lengths) in zip(starts, chunks, strict=True):
            ids = np.array(
                [vocabulary.setdefault(word, len(vocabulary)) for word in distinct], dtype=np.int32
            )
            parts.append((ids[words] if len(words) else words, rows + np.int32(start), occurrences, lengths))
            bar.update(len(lengths))
    words, rows, occurrences, lengths = (np.concatenate(part) for part in zip(*parts, strict=True))
    mean = float(mean_length or max(lengths.mean(), 1e-9))
    frequencies = np.bincount(words, minlength=len(vocabulary))
    idf = np.log(1 + (count - frequencies + 0.5) / (frequencies + 0.5)).astype(np.float32)
    length_factor = (K1 * ((1 - B) + B * lengths / mean)).astype(np.float32)
    scores = idf[words] * (occurrences / (length_factor[rows] + occurrences))
    order = np.argsort(words, kind="stable")  # within a word documents stay in their order
    part = folder / BM25
    part.mkdir(exist_ok=True)
    np.save(part / "scores.npy", scores[order])
    np.save(part / "rows.npy", rows[order])
    np.save(part / "starts.npy", np.concatenate([[0], np.cumsum(frequencies)]).astype(np.int64))
    write_json(part / "words.json", list(vocabulary), indent=None)
    return mean


def _counted(
    folder: Path, start: int, stop: int
) -> tuple[list[str], np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Count the words of the documents from `start` to before `stop`.

    Returns:
        The distinct words; for each pair of a word and a document that holds it, the word, the document and
        the number of occurrences, ordered by document; the length of each document in words.
    """
    known: dict[str, int] = {}
    places: list[int] = []
    lengths = []
    for text in Documents(folder).texts(start, stop):
        cut = words_of(text)
        places.extend([known.setdefault(word, len(known)) for word in cut])
        lengths.append(len(cut))
    base = np.int64(max(len(known), 1))
    documents = np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)
    pairs, counts = np.unique(documents * base + np.array(places, dtype=np.int64), return_counts=True)
    document, word = np.divmod(pairs, base)
    return (
        list(known), word.astype(np.int32), document.astype(np.int32), counts.astype(np.float32),
        np.array(lengths, dtype=np.int64),
    )  # fmt: skip


class SegmentWords:
    """BM25 scores of one segment, mapped into memory.

    Args:
        folder: The segment's folder.
        count: Number of its documents.

    Raises:
        MarError: The files are damaged, or belong to other documents.
    """

    def __init__(self, folder: Path, count: int) -> None:
        self.count = count
        try:
            names = ("scores", "rows", "starts")
            self.scores, self.rows, self.starts = (
                load_array(folder / BM25 / f"{name}.npy", mapped=True).view(np.ndarray) for name in names
            )
            words = read_json(folder / BM25 / "words.json")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise MarError(f"{folder / BM25} is damaged ({error}). Build the index again.") from error
        self.vocabulary = {str(word): place for place, word in enumerate(words)}

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
