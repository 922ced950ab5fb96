"""Decisions written to disk as they are made, so that a killed run resumes where it stopped."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from medteb_mteb.curation.files.records import BuildError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DecisionJournal"]

#: Bytes of a decision. None of them is 0, which is what a file may end with after a loss of power.
KEPT_BYTE, DROPPED_BYTE = 1, 2

#: Rows whose digest is computed at once.
ROWS_PER_CHUNK = 65_536


class DecisionJournal:
    """A file: one line of JSON with the input and the settings, then one byte per decision.

    Args:
        path: The file; created if it does not exist.
        vectors: The vectors to decide about, `(n, dim)`.
        settings: Everything else that the decisions depend on.

    Raises:
        BuildError: The file belongs to other vectors or settings, or cannot be written.
    """

    def __init__(self, path: str | Path, vectors: np.ndarray, settings: Mapping[str, Any]) -> None:
        self.path = Path(path)
        self._header = {"vectors": _digest(vectors), "n": len(vectors), **settings}
        line = json.dumps(self._header).encode() + b"\n"
        self._start = len(line)
        try:
            if not self.path.is_file() or not self.path.stat().st_size:
                self._append(line, "wb")
                return
            with self.path.open("rb") as file:
                first_line = file.readline()
        except OSError as error:
            raise BuildError(f"{self.path} cannot be written ({error.strerror}).") from error
        if line.startswith(first_line) and first_line != line:
            self._append(line, "wb")  # killed while the line was written
        elif first_line != line:
            raise BuildError(self._mismatch(first_line))

    def read(self) -> np.ndarray:
        """Return the decisions so far, `(m,)` bool, true where a vector is kept; at most one per vector."""
        stop = self._start + self._header["n"]
        content = np.frombuffer(self.path.read_bytes()[self._start : stop], dtype=np.uint8)
        wrong = np.flatnonzero((content != KEPT_BYTE) & (content != DROPPED_BYTE))
        decided: np.ndarray = content[: wrong[0] if len(wrong) else None] == KEPT_BYTE
        return decided

    def cut(self, decisions: int) -> None:
        """Forget all but the first decisions."""
        os.truncate(self.path, self._start + decisions)

    def write(self, kept: np.ndarray) -> None:
        """Add decisions, `(m,)` bool.

        Raises:
            BuildError: The decisions cannot be written; earlier ones are kept.
        """
        self._append(np.where(kept, KEPT_BYTE, DROPPED_BYTE).astype(np.uint8).tobytes(), "ab")

    def _append(self, content: bytes, mode: str) -> None:
        try:
            with self.path.open(mode) as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise BuildError(
                f"{self.path} cannot be written ({error.strerror}); what was decided before is kept. Free "
                "disk space and run the command again."
            ) from error

    def _mismatch(self, first_line: bytes) -> str:
        try:
            header = json.loads(first_line)
        except (ValueError, RecursionError):
            header = None
        if not isinstance(header, dict) or not header.keys() >= {"vectors", "n"}:
            return f"{self.path} is not a journal of decisions; give another file."
        names = [*self._header, *(name for name in header if name not in self._header)]
        changed = [name for name in names if header.get(name) != self._header.get(name)] or ["settings"]
        return (
            f"{self.path} holds decisions with other {', '.join(changed)}. Give another file, or delete it."
        )


def _digest(vectors: np.ndarray) -> str:
    digest = hashlib.sha256(f"{vectors.dtype.str} {vectors.shape}\n".encode())
    for start in range(0, len(vectors), ROWS_PER_CHUNK):
        digest.update(np.ascontiguousarray(vectors[start : start + ROWS_PER_CHUNK]).data)
    return digest.hexdigest()
