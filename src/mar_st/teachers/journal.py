"""The journal of an endpoint: vectors that were paid for, each with a checksum."""

from __future__ import annotations

import json
import logging
import os
import threading
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
from filelock import FileLock

from mar_st.errors import MarError
from mar_st.files import write_text
from mar_st.teachers.vectors import KEY_BYTES, KeyIndex, Part

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

_LOG = logging.getLogger(__name__)

#: Records, checksums (CRC-32 of each record, in their order), and what the vectors are.
RECORDS_FILE, CHECKS_FILE, HEADER_FILE = "journal.bin", "journal.crc", "journal.json"

#: Bytes of records that are read at once.
_CHUNK_BYTES = 64 * 2**20


class TeacherJournalError(MarError):
    """Vectors that the journal does not accept, or a header that cannot be read."""


class Journal:
    """An append-only file of vectors: records of a key (16 bytes) and `dim` float32.

    A record whose checksum does not match is not used, so its text is requested again; no record is deleted.
    Journals of earlier versions get their checksums when they are first opened.

    Args:
        folder: Folder of `journal.bin`, `journal.crc` and `journal.json` (dim and description of vectors).
        about: Description of the vectors, for readers of the folder.
    """

    def __init__(self, folder: Path, about: Mapping[str, str]) -> None:
        self.folder, self.about = folder, dict(about)
        self.path, self._checks, self._header = (
            folder / RECORDS_FILE,
            folder / CHECKS_FILE,
            folder / HEADER_FILE,
        )
        self.index = KeyIndex(np.empty(0, dtype=f"S{KEY_BYTES}"))
        self.rows = 0
        self._keys = np.empty(0, dtype=f"S{KEY_BYTES}")  # of records that were read and checked
        self._dim: int | None = None
        self._writing = threading.Lock()

    @property
    def lock(self) -> FileLock:
        """Return the lock of the process that requests vectors; others wait and then find them."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return FileLock(self.folder / "lock")

    @property
    def part(self) -> Part | None:
        """Return the vectors for reading."""
        return Part(self.path, self._record, (self.rows,), field="vector") if self.rows else None

    @property
    def _record(self) -> np.dtype[Any]:
        return record_type(self._dim or 0)

    def open(self) -> None:
        """Read the keys; cut off a record that a kill left torn.

        Raises:
            TeacherJournalError: The header cannot be read.
        """
        if not self._header.is_file():
            return
        self._dim = width(self.folder)
        size = self.path.stat().st_size if self.path.is_file() else 0
        self.rows, torn = divmod(size, self._record.itemsize)
        if torn:
            os.truncate(self.path, size - torn)
        sums = read_checks(self.folder)[: self.rows]
        known = len(self._keys)
        if self.rows > known:
            computed = checksums(self.path, self._record, known, self.rows)
            keys = np.array(np.memmap(self.path, self._record, "r", shape=(self.rows,))["key"][known:])
            wrong = np.flatnonzero(computed[: max(0, len(sums) - known)] != sums[known:])
            if len(wrong):
                _LOG.warning(
                    "%d records of %s were changed since they were written; their texts are requested again.",
                    len(wrong),
                    self.path,
                )
                keys[wrong] = b""  # matches no text
            self._keys = np.concatenate([self._keys, keys])
            self.index = KeyIndex(self._keys)
            if len(sums) < self.rows:
                self._write_checks(np.concatenate([sums, computed[len(sums) - known :]]))
        if self._checks.is_file() and self._checks.stat().st_size > 4 * self.rows:
            os.truncate(self._checks, 4 * self.rows)

    def append(self, keys: np.ndarray, vectors: Iterable[Sequence[float]]) -> None:
        """Append vectors.

        Raises:
            TeacherJournalError: The vectors are not finite, or differ in width from those before.
        """
        matrix = np.array(list(vectors), dtype=np.float32)
        if matrix.ndim != 2 or not np.isfinite(matrix).all():
            raise TeacherJournalError("gave vectors of unequal width, or not finite.")
        with self._writing:
            if self._dim is None:
                self._dim = matrix.shape[1]
                write_text(self._header, json.dumps({**self.about, "dim": self._dim}, indent=2))
            if matrix.shape[1] != self._dim:
                raise TeacherJournalError(
                    f"returned vectors of {matrix.shape[1]} dimensions, earlier ones have {self._dim}: the "
                    f"model behind the name has changed. Delete {self.folder} to pay for all vectors again."
                )
            records = np.empty(len(keys), dtype=self._record)
            records["key"], records["vector"] = keys, matrix
            _append(self.path, records.tobytes())  # they were paid for
            _append(self._checks, np.array([zlib.crc32(record) for record in records], dtype="<u4").tobytes())
            self.rows += len(keys)

    def _write_checks(self, sums: np.ndarray) -> None:
        """Write the checksums of records that have none: those of an earlier version, or of a kill."""
        written = self._checks.stat().st_size // 4 if self._checks.is_file() else 0
        if self._checks.is_file():
            os.truncate(self._checks, 4 * written)
        _append(self._checks, sums[written:].astype("<u4").tobytes())


def record_type(dim: int) -> np.dtype[Any]:
    """Return the type of a record: key and vector."""
    return np.dtype([("key", f"S{KEY_BYTES}"), ("vector", "<f4", (dim,))])


def is_journal(folder: Path) -> bool:
    """Return True if a folder holds a journal, whole or not."""
    return (folder / HEADER_FILE).is_file() or (folder / RECORDS_FILE).is_file()


def width(folder: Path) -> int:
    """Return the dimensions of the vectors of a journal.

    Raises:
        TeacherJournalError: The header cannot be read.
    """
    try:
        dim = json.loads((folder / HEADER_FILE).read_text(encoding="utf-8"))["dim"]
        if type(dim) is not int or not 0 < dim < 2**20:
            raise ValueError("'dim' is the width of vectors")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise TeacherJournalError(
            f"{folder / HEADER_FILE} is damaged ({type(error).__name__}). Copy it again, or delete {folder} "
            "to pay for all vectors again."
        ) from error
    return dim


def read_checks(folder: Path) -> np.ndarray:
    """Return the checksums of the records of a journal, `(n,)` uint32; a torn last one is left out."""
    path = folder / CHECKS_FILE
    content = path.read_bytes() if path.is_file() else b""
    return np.frombuffer(content[: len(content) // 4 * 4], dtype="<u4")


def checksums(path: Path, record: np.dtype[Any], start: int, stop: int) -> np.ndarray:
    """Return the CRC-32 of some records, `(stop - start,)` uint32."""
    sums = np.empty(stop - start, dtype=np.uint32)
    size, index = record.itemsize, 0
    with path.open("rb") as stream:
        stream.seek(start * size)
        while index < len(sums):
            content = memoryview(stream.read(min(max(1, _CHUNK_BYTES // size), len(sums) - index) * size))
            for at in range(0, len(content), size):
                sums[index] = zlib.crc32(content[at : at + size])
                index += 1
    return sums


def _append(path: Path, content: bytes) -> None:
    with path.open("ab") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
