"""Preparing the inputs of an exported graph: tokenization, token embeddings, and packs of texts."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from tokenizers import Tokenizer

from mar_st.files import load_array, one_line
from mar_st.online.listing import BIGRAM_FILES, EMBEDDINGS, TOKENIZER, Listing
from mar_st.online.protocol import EncoderError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


#: Tokens that go through the graph together: enough to read the weights for many rows at once. With more, the
#: cost of attention, which is quadratic in them, would count.
PACK_TOKENS = 256
#: Rows of a pack are padded to a multiple of this. So there are few shapes, each of which a runtime prepares
#: once, and matrix units compute 16 rows in any case.
ROW_STEP = 16


@dataclass(frozen=True)
class Pack:
    """Texts that go through the graph together.

    Attributes:
        count: Number of texts.
        inputs: The graph's inputs by name.
    """

    count: int
    inputs: dict[str, np.ndarray]


class QueryTokenizer:
    """The tokenizer of an exported encoder.

    Args:
        path: `tokenizer.json`.
        max_length: Maximum tokens per text, including special tokens.
        side: Side on which a text is cut.
    """

    def __init__(self, path: Path, max_length: int, side: str = "right") -> None:
        try:
            self._tokenizer: Any = Tokenizer.from_file(str(path))
        except Exception as error:  # it raises no narrower type
            raise EncoderError(
                f"{path} cannot be read ({one_line(error)}); copy or export the encoder again."
            ) from error
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_length, direction=side)
        self._special = self._tokenizer.num_special_tokens_to_add(False)

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text, special tokens included, cut to the maximum length."""
        if len(texts) == 1:  # avoids the threads of a batch
            return [self._tokenizer.encode(texts[0]).ids]
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(list(texts))]

    def counts(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text before it is cut."""
        if len(texts) == 1:
            return [self._count(self._tokenizer.encode(texts[0]))]
        return [self._count(encoding) for encoding in self._tokenizer.encode_batch_fast(list(texts))]

    def _count(self, encoding: Any) -> int:
        overflowing: int = sum(len(part.ids) - self._special for part in encoding.overflowing)
        return len(encoding.ids) + overflowing


def _array(path: Path, *, mapped: bool = False) -> Any:
    try:
        return load_array(path, mapped=mapped)
    except (ValueError, OSError) as error:
        raise EncoderError(f"{path} cannot be read ({error}); copy or export the encoder again.") from error


class EmbeddingTable:
    """Rows of the token table, read from the file as they are needed.

    They are read, not mapped: the kernel maps 16 pages around each page that is touched. So after some
    thousand queries the process would hold a whole mapped table in memory, although it used one row in
    twenty. Reading a row takes about a microsecond, as the file stays in the system's cache.

    Args:
        path: An `.npy` file `(vocabulary, hidden)`.

    Raises:
        EncoderError: The file is damaged, or is not such an array.
    """

    def __init__(self, path: Path) -> None:
        header = _array(path, mapped=True)
        fits = header.ndim == 2 and header.dtype in (np.float16, np.float32) and header.flags.c_contiguous
        if not fits or not isinstance(header, np.memmap):
            raise EncoderError(
                f"{path} holds {header.dtype} {header.shape}; expected rows of float16 or float32. Copy or "
                "export the encoder again."
            )
        self._dtype, self._start = header.dtype, int(header.offset)
        self.rows, self.width = map(int, header.shape)
        self._file = path.open("rb", buffering=0)

    def __getitem__(self, ids: np.ndarray) -> np.ndarray:
        """Return rows, float32 `(len(ids), width)`.

        Raises:
            EncoderError: A token of the tokenizer has no row.
        """
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < self.rows:
            raise EncoderError(f"A token has no row among {self.rows} embeddings. Export the encoder again.")
        distinct, places = np.unique(ids, return_inverse=True)
        size = self.width * self._dtype.itemsize
        handle, start = self._file.fileno(), self._start
        content = b"".join(os.pread(handle, size, start + row * size) for row in distinct.tolist())
        rows = np.frombuffer(content, dtype=self._dtype).reshape(len(distinct), self.width)
        return rows[places].astype(np.float32, copy=False)


class BigramTable:
    """Vectors of token pairs, see `mar_st.modules.bigrams`: keys in memory, vectors read as they are needed.

    Args:
        folder: Folder with `BIGRAM_FILES`.
        width: Width of the token embeddings.

    Raises:
        EncoderError: A file is damaged, or the files do not fit each other or the token embeddings.
    """

    def __init__(self, folder: Path, width: int) -> None:
        keys, *vectors = (folder / name for name in BIGRAM_FILES)
        self._keys: np.ndarray = _array(keys)
        self._first, self._second = (EmbeddingTable(path) for path in vectors)
        tables = (self._first, self._second)
        fits = self._keys.ndim == 1 and self._keys.dtype == np.int64 and len(self._keys) > 0
        fits = fits and bool((np.diff(self._keys) > 0).all())
        if not fits or any((one.rows, one.width) != (len(self._keys), width) for one in tables):
            raise EncoderError(
                f"The vectors of token pairs in {folder} do not fit each other or embeddings of {width} "
                "dimensions. Copy or export the encoder again."
            )

    def add(self, embeddings: np.ndarray, ids: np.ndarray, segments: np.ndarray) -> None:
        """Add the vectors of all pairs within texts to token embeddings, in place.

        Args:
            embeddings: Token embeddings, float32 `(tokens, width)`.
            ids: Token ids, int64 `(tokens,)`.
            segments: Number of the text of each token, `(tokens,)`.
        """
        wanted = (ids[:-1] << 32) | ids[1:]
        rows = np.searchsorted(self._keys, wanted).clip(max=len(self._keys) - 1)
        first = np.flatnonzero((self._keys[rows] == wanted) & (segments[:-1] == segments[1:]))
        embeddings[first] += self._first[rows[first]]
        embeddings[first + 1] += self._second[rows[first]]


class TextPacker:
    """Turns texts into packs.

    Args:
        folder: Folder with the tokenizer and the tables.
        listing: Listing of the folder.
    """

    def __init__(self, folder: Path, listing: Listing) -> None:
        self._listing = listing
        self._mode = listing.pooling
        self.single = self._mode in ("cls", "lasttoken")
        self.tokenizer = QueryTokenizer(folder / TOKENIZER, listing.max_length, listing.truncation)
        self.table = EmbeddingTable(folder / EMBEDDINGS)
        self._bigrams = BigramTable(folder, self.table.width) if listing.bigrams else None

    def packs(self, texts: Sequence[str]) -> Iterator[Pack]:
        """Yield the packs of texts in their order, each of about `PACK_TOKENS` tokens or one text.

        Args:
            texts: Texts, each with its prompt in front.
        """
        rows: list[list[int]] = []
        tokens = 0
        for ids in self.tokenizer.ids(texts):
            if rows and tokens + len(ids) > PACK_TOKENS:
                yield self._pack(rows, tokens)
                rows, tokens = [], 0
            rows.append(ids)
            tokens += len(ids)
        if rows:
            yield self._pack(rows, tokens)

    def _pack(self, rows: list[list[int]], tokens: int) -> Pack:
        size = -(-max(tokens, 1) // ROW_STEP) * ROW_STEP
        lengths = np.array([len(row) for row in rows])
        starts = np.cumsum(lengths) - lengths
        ids = np.full(size, self._listing.filler, dtype=np.int64)
        ids[:tokens] = np.concatenate([np.array(row, dtype=np.int64) for row in rows])
        segments = np.full(size, -1, dtype=np.int32)
        segments[:tokens] = np.repeat(np.arange(len(rows), dtype=np.int32), lengths)
        positions = np.zeros(size, dtype=np.int64)
        positions[:tokens] = np.arange(tokens) - np.repeat(starts, lengths)
        embeddings = self.table[ids]
        if self._bigrams is not None:
            self._bigrams.add(embeddings, ids, segments)
        inputs = {
            "embeddings": embeddings,
            "positions": positions + self._listing.positions,
            "segments": segments,
            "pool": self._pool(starts, lengths, size),
        }
        return Pack(len(rows), inputs)

    def _pool(self, starts: np.ndarray, lengths: np.ndarray, size: int) -> np.ndarray:
        """Return the pooled row, or the weights of all rows, of each text; padded to a power of two texts."""
        count = 1 << (len(starts) - 1).bit_length()
        if self.single:
            rows = np.zeros(count, dtype=np.int64)
            rows[: len(starts)] = starts if self._mode == "cls" else starts + lengths - 1
            return rows
        weights = np.zeros((count, size), dtype=np.float32)
        for text, (start, length) in enumerate(zip(starts, lengths, strict=True)):
            weights[text, start : start + length] = 1 / max(length, 1)
        return weights
