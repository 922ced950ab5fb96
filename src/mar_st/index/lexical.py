"""BM25 by bm25s: a memory-mapped matrix of scores per segment.

Each segment is a complete index of bm25s. Where there are several, the weight of a word comes from all of
them together: Lucene's idf is a factor of every score of a word, so it can be exchanged when a query is
answered. Lengths are compared with the mean of the first segment, and documents that were deleted count in
the statistics until the index is compacted, as in Lucene.
"""

from __future__ import annotations

import json
import logging
import math
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context
from tokenize import TokenError
from typing import TYPE_CHECKING
from zipfile import BadZipFile

import numpy as np
from tqdm import tqdm

from mar_st.files import finished, move_folder, one_line
from mar_st.index import flat
from mar_st.index.errors import IndexingError
from mar_st.kernels.processor import processors
from mar_st.online.batcher import check_deadline
from mar_st.text.words import TOKENIZERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from mar_st.index.documents import Documents
    from mar_st.index.mask import Mask

BM25_FOLDER = "bm25"

_MEAN_LENGTH_FILE = "mean_length.json"

#: Maximum number of different words of a query (as many as Lucene's clauses), and of characters that are
#: split into words.
MAX_QUERY_WORDS, MAX_QUERY_CHARACTERS = 1024, 16 * 1024

#: Documents whose words are cut at once and stored together, so that a killed build can resume.
DOCUMENTS_PER_CHUNK = 16_384

#: Minimum number of documents for which several processes split texts into words.
MIN_PARALLEL_DOCUMENTS = 4 * DOCUMENTS_PER_CHUNK


def build(
    folder: Path, documents: Documents, tokens: str, *, mean_length: float | None = None, progress: bool
) -> float:
    """Write the BM25 index of a segment.

    Args:
        folder: The segment's folder.
        documents: Its documents.
        tokens: Tokenizer: `jieba` or `char-bigram`.
        mean_length: Mean number of words per document; default that of these documents.
        progress: Show a progress bar.

    Returns:
        Mean number of words per document.
    """
    from mar_st.index.counted import CountedBM25, CountedWords  # lazy: bm25s

    mean_path = folder / BM25_FOLDER / _MEAN_LENGTH_FILE
    if mean_path.is_file():
        return float(json.loads(mean_path.read_text(encoding="utf-8")))
    logging.getLogger("bm25s").setLevel(logging.WARNING)  # it sets itself to DEBUG
    vocabulary: dict[str, int] = {}
    counted: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    lengths: list[np.ndarray] = []
    for distinct, places, chunk_lengths in _words(folder, documents, tokens, progress=progress):
        ids = np.array([vocabulary.setdefault(word, len(vocabulary)) for word in distinct], dtype=np.int32)
        words, rows, counts = _counted(places, chunk_lengths)
        first = sum(map(len, lengths))
        counted.append((ids[words] if len(distinct) else words, rows + np.int32(first), counts))
        lengths.append(chunk_lengths)
    all_lengths = np.concatenate(lengths)
    mean = float(mean_length or max(all_lengths.mean(), 1e-9))
    words, rows, counts = (np.concatenate(part) for part in zip(*counted, strict=True))
    index = CountedBM25(mean)
    index.index(CountedWords((words, rows, counts, all_lengths), vocabulary), create_empty_token=False)
    part = folder / f"{BM25_FOLDER}.part"
    index.save(part, show_progress=False)
    (part / _MEAN_LENGTH_FILE).write_text(json.dumps(mean), encoding="utf-8")
    move_folder(part, folder / BM25_FOLDER)
    for path in folder.glob("words-*.npz"):
        path.unlink()
    return mean


def _counted(words: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return how often each word occurs in each document: words and documents, int32, and counts, float32."""
    documents = np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)
    base = np.int64(max(len(words), 1))
    pairs, counts = np.unique(documents * base + words, return_counts=True)
    document, word = np.divmod(pairs, base)
    return word.astype(np.int32), document.astype(np.int32), counts.astype(np.float32)


def _words(
    folder: Path, documents: Documents, tokens: str, *, progress: bool
) -> Iterator[tuple[list[str], np.ndarray, np.ndarray]]:
    """Yield for each chunk its distinct words, its documents as indices of these, and document lengths."""
    starts = range(0, len(documents), DOCUMENTS_PER_CHUNK)
    paths = [folder / f"words-{start:012d}.npz" for start in starts]
    waiting = [start for start, path in zip(starts, paths, strict=True) if not path.is_file()]
    workers = min(processors(), len(waiting)) if len(documents) >= MIN_PARALLEL_DOCUMENTS else 1
    with tqdm(
        total=len(paths), initial=len(paths) - len(waiting), desc="bm25", unit="chunk", disable=not progress
    ) as bar:
        if workers > 1:
            with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
                tasks = ((documents.folder, at, at + DOCUMENTS_PER_CHUNK, tokens) for at in waiting)
                for _ in pool.map(_cut_chunk, *zip(*tasks, strict=True)):
                    bar.update()
        else:
            for at in waiting:
                _cut_chunk(documents.folder, at, at + DOCUMENTS_PER_CHUNK, tokens, documents)
                bar.update()
    for path in paths:
        with np.load(path, allow_pickle=False) as arrays:
            yield json.loads(arrays["words"].tobytes()), arrays["places"], arrays["lengths"]


def _cut_chunk(folder: Path, start: int, stop: int, tokens: str, documents: Documents | None = None) -> None:
    """Cut the texts of one chunk into words and keep them in a file."""
    from mar_st.index.documents import Documents  # lazy: pyarrow

    documents = documents or Documents(folder)
    known: dict[str, int] = {}
    places: list[int] = []
    lengths = []
    for text in documents.texts(start, stop):
        cut = TOKENIZERS[tokens](text)
        places.extend([known.setdefault(word, len(known)) for word in cut])
        lengths.append(len(cut))
    path = folder / f"words-{start:012d}.npz"
    words = np.frombuffer(json.dumps(list(known), ensure_ascii=False).encode(), dtype=np.uint8)
    with finished(path) as part, part.open("wb") as stream:
        np.savez(
            stream,
            words=words,
            places=np.array(places, dtype=np.int32),
            lengths=np.array(lengths, dtype=np.int64),
        )


#: What numpy, JSON and bm25s raise for damaged files.
_DAMAGE_ERRORS = (
    OSError, ValueError, EOFError, SyntaxError, TokenError, TypeError, ArithmeticError, LookupError,
    AttributeError, RecursionError, MemoryError, BadZipFile,
)  # fmt: skip


class LexicalSegment:
    """BM25 scores of one segment, mapped into memory.

    Args:
        folder: The segment's folder.
        count: Number of its documents.

    Raises:
        FileNotFoundError: The segment has no BM25 index.
        IndexingError: The index is damaged, or belongs to other documents.
    """

    def __init__(self, folder: Path, count: int) -> None:
        import bm25s  # lazy: bm25s

        logging.getLogger("bm25s").setLevel(logging.WARNING)
        self.folder = folder / BM25_FOLDER
        try:
            index = bm25s.BM25.load(self.folder, mmap=True, show_progress=False)
            self.vocabulary: dict[str, int] = index.vocab_dict
            self.data, self.indices, self.starts = (
                np.asarray(index.scores[name]) for name in ("data", "indices", "indptr")
            )
            self.count = int(index.scores["num_docs"])
            places = self.vocabulary.values()
            fits = self.count == count and len(self.data) == len(self.indices) == int(self.starts[-1])
            fits &= self.starts[0] == 0 and bool((self.starts[1:] >= self.starts[:-1]).all())
            fits &= all(type(place) is int for place in places)
            fits &= min(places, default=0) >= 0 and max(places, default=-1) < len(self.starts) - 1
            kinds = [array.dtype.kind for array in (self.data, self.indices, self.starts)]
            fits &= kinds[0] == "f" and set(kinds[1:]) <= {"i", "u"}
        except FileNotFoundError:
            raise
        except _DAMAGE_ERRORS as error:
            raise IndexingError(
                f"{self.folder} is damaged ({one_line(error)}). Copy the index again, or build it again."
            ) from error
        if not fits:
            raise IndexingError(
                f"The files of {self.folder} do not belong to the {count} documents of the segment. Copy the "
                "index again, or build it again."
            )

    def frequency(self, word: str) -> int:
        """Return the number of documents that hold a word."""
        place = self.vocabulary.get(word)
        return 0 if place is None else int(self.starts[place + 1] - self.starts[place])

    def scores(self, words: Sequence[tuple[str, float]], deadline: float | None = None) -> np.ndarray:
        """Return the weighted sum of the scores of some words for every document, `(n,)` float32.

        Raises:
            DeadlinePassed: The caller has stopped waiting.
            IndexingError: The files are damaged.
        """
        sums = np.zeros(self.count, dtype=np.float32)
        for word, weight in words:
            check_deadline(deadline)
            place = self.vocabulary.get(word)
            if place is not None:
                here = slice(int(self.starts[place]), int(self.starts[place + 1]))
                values = self.data[here] if weight == 1 else self.data[here] * np.float32(weight)
                try:
                    sums[self.indices[here]] += values  # a document occurs once in a column
                except IndexError as error:  # not all of them are checked earlier
                    raise IndexingError(
                        f"{self.folder} is damaged ({one_line(error)}). Copy the index again, or build it "
                        "again."
                    ) from error
        return sums


class Lexical:
    """BM25 over several segments; safe to search from several threads.

    Args:
        segments: The segments.
        tokens: Tokenizer of the texts.
    """

    def __init__(self, segments: Sequence[LexicalSegment], tokens: str) -> None:
        self.segments, self.tokens = list(segments), tokens

    def search(
        self, texts: Sequence[str], k: int, masks: Sequence[Mask | None], *, deadline: float | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the best `k` documents for each text, only documents that share a word with it.

        Only the first `MAX_QUERY_CHARACTERS` characters of a text, and the first `MAX_QUERY_WORDS` different
        words in them, are used.

        Args:
            texts: The queries.
            k: Documents per query.
            masks: For each segment the rows that may be found; `None`: all.
            deadline: Value of `time.monotonic()` until which the caller waits.

        Returns:
            Scores, float32, and rows counted over all segments, int64, `(texts, k)`; -inf and -1 where there
            are fewer.

        Raises:
            DeadlinePassed: The caller has stopped waiting.
        """
        parts = [self._search_text(text, k, masks, deadline) for text in texts]
        nothing = np.empty((0, k))
        scores = np.concatenate([part[0] for part in parts] or [nothing]).astype(np.float32)
        return scores, np.concatenate([part[1] for part in parts] or [nothing]).astype(np.int64)

    def _search_text(
        self, text: str, k: int, masks: Sequence[Mask | None], deadline: float | None
    ) -> tuple[np.ndarray, np.ndarray]:
        words = self._words(text)
        frequencies = {word: [part.frequency(word) for part in self.segments] for word in words}
        best, first = [], 0
        for number, (segment, mask) in enumerate(zip(self.segments, masks, strict=True)):
            weighted = [
                (word, occurrences * self._weight(number, frequencies[word]))
                for word, occurrences in words.items()
            ]
            scores = segment.scores(weighted, deadline)
            if mask is not None:
                scores[~mask.flags()] = 0
            rows = np.flatnonzero(scores > 0)
            values = scores[rows]
            if len(rows) > k:
                edge = np.partition(values, len(rows) - k)[len(rows) - k]
                rows, values = rows[values >= edge], values[values >= edge]
            best.append(flat.top(values[None], rows[None] + first, k))
            first += segment.count
        return flat.merge(best, k)

    def _words(self, text: str) -> dict[str, int]:
        """Return the words of a query in order, with the number of their occurrences."""
        counts = Counter(TOKENIZERS[self.tokens](text[:MAX_QUERY_CHARACTERS]))
        return dict(islice(counts.items(), MAX_QUERY_WORDS))

    def _weight(self, number: int, frequencies: list[int]) -> float:
        """Return the factor that gives a word's scores in one segment the idf of all segments."""
        if len(self.segments) == 1 or not frequencies[number]:
            return 1.0
        total = sum(segment.count for segment in self.segments)
        own = self.segments[number].count
        return _idf(total, sum(frequencies)) / _idf(own, frequencies[number])


def _idf(count: int, frequency: int) -> float:
    return math.log(1 + (count - frequency + 0.5) / (frequency + 0.5))
