"""One pass over a corpus before anything is computed: finds errors, duplicate ids, digests and shards."""

from __future__ import annotations

import hashlib
from array import array
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

from mar_st.encode.corpus import CorpusError, Entry, Mark, marked_entries, read_corpus

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


@dataclass(frozen=True)
class Scan:
    """Counts, digests and shard positions found by one pass over a corpus.

    Attributes:
        source: The corpus.
        rows: Documents per shard.
        count: Number of documents.
        digest: Digest of ids and texts of all documents, in order.
        shards: Digest of each shard: ids and texts of its documents.
        marks: Position of the first document of each shard.
    """

    source: str
    rows: int
    count: int
    digest: str
    shards: tuple[str, ...]
    marks: tuple[Mark, ...]

    def size(self, number: int) -> int:
        """Return the number of documents of a shard."""
        return min(self.rows, self.count - number * self.rows)


def scan_corpus(source: str | Path, rows: int, *, show_progress: bool = True) -> Scan:
    """Read a corpus once; memory holds eight bytes per document.

    Args:
        source: See `mar_st.encode.corpus.read_corpus`.
        rows: Documents per shard.
        show_progress: Show a progress bar.

    Raises:
        CorpusError: The corpus cannot be read or is empty, or an id occurs twice.
    """
    whole, part = hashlib.sha256(), hashlib.sha256()
    shards: list[str] = []
    marks: list[Mark] = []
    keys = array("Q")
    count = 0
    bar = tqdm(desc="reading", unit="documents", unit_scale=True, disable=not show_progress, leave=False)
    with bar:
        for count, (mark, entry) in enumerate(marked_entries(source), 1):
            if (count - 1) % rows == 0:
                if marks:
                    shards.append(part.hexdigest())
                part = hashlib.sha256()
                marks.append(mark)
            content = _content(entry)
            whole.update(content)
            part.update(content)
            keys.append(int.from_bytes(hashlib.blake2b(entry.id.encode(), digest_size=8).digest(), "little"))
            bar.update()
    if not count:
        raise CorpusError(f"{source} holds no documents.")
    shards.append(part.hexdigest())
    _refuse_duplicates(source, keys)
    return Scan(str(source), rows, count, whole.hexdigest(), tuple(shards), tuple(marks))


def rows_digest(entries: Sequence[Entry]) -> str:
    """Return the digest of a shard with these documents."""
    digest = hashlib.sha256()
    for entry in entries:
        digest.update(_content(entry))
    return digest.hexdigest()


def _content(entry: Entry) -> bytes:
    """Return id and text, each after its length, so that no two different rows give the same bytes."""
    parts = (entry.id.encode(), entry.document.encode())
    return b"".join(len(part).to_bytes(8, "little") + part for part in parts)


def _refuse_duplicates(source: str | Path, keys: array[int]) -> None:
    hashes = np.frombuffer(keys, dtype=np.uint64).copy()
    hashes.sort()
    twice = {int(value) for value in hashes[1:][hashes[1:] == hashes[:-1]]}
    if not twice:
        return
    seen: dict[str, int] = {}
    for number, entry in enumerate(read_corpus(source), 1):
        if int.from_bytes(hashlib.blake2b(entry.id.encode(), digest_size=8).digest(), "little") in twice:
            if entry.id in seen:
                raise CorpusError(
                    f"{source}: the id {entry.id!r} occurs twice (documents {seen[entry.id]} and "
                    f"{number}). Every document needs an id of its own."
                )
            seen[entry.id] = number


class ShardReader:
    """Reads shards of a scanned corpus, preferably in ascending order.

    In an uncompressed JSONL file it seeks to a shard; other sources are read from the current position, or
    from the start.
    """

    def __init__(self, scan: Scan) -> None:
        self.scan = scan
        self._next = -1
        self._entries: Iterator[tuple[Any, Entry]] = iter(())

    def read(self, number: int) -> list[Entry]:
        """Return the documents of a shard.

        Raises:
            CorpusError: The documents changed since the scan.
        """
        scan = self.scan
        mark = scan.marks[number]
        if number != self._next:
            if mark.offset >= 0:
                self._entries = marked_entries(scan.source, mark)
            else:
                if not 0 <= self._next < number:
                    self._entries, self._next = marked_entries(scan.source), 0
                for _ in islice(self._entries, (number - self._next) * scan.rows):
                    pass
        self._next = number + 1
        entries = [entry for _, entry in islice(self._entries, scan.size(number))]
        if rows_digest(entries) != scan.shards[number]:
            raise CorpusError(
                f"{scan.source} was changed while it was being encoded. Run the command again on the corpus "
                "as it should be."
            )
        return entries
