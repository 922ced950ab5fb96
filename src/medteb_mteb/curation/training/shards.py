"""Rows of several files, written shard by shard: a killed step resumes after the last finished shard.

A shard's rows are in `NAME-00000.jsonl`, its counts in `shard-00000.json`, which is written last. At the end
the shards of a name become `NAME.jsonl`.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mar_st.files.writing import finished
from medteb_mteb.curation.files.folder import read_json, write_text
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.editions import sha256_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

__all__ = ["Shards", "lines", "moved"]


class Shards:
    """The shards of a step's folder.

    Args:
        folder: The folder.
        names: Names of the files, without suffix.
    """

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self.folder, self.names = folder, tuple(names)

    def finished(self, number: int) -> dict[str, int] | None:
        """Return the counts of a shard that an earlier run has finished; `None` if there is none."""
        marker = self._path("shard", number)
        return read_json(marker) if marker.is_file() else None

    def write(
        self, number: int, rows: Mapping[str, Iterable[Mapping[str, Any]]], counts: Mapping[str, int]
    ) -> None:
        """Write the rows of a shard by name of the file; its marker comes last."""
        for name in self.names:
            write_text(self._path(name, number), lines(rows.get(name, ())))
        write_text(self._path("shard", number), json.dumps(counts, ensure_ascii=False))

    def counts(self) -> Counter[str]:
        """Return the sums of the counts of all shards."""
        total: Counter[str] = Counter()
        for path in sorted(self.folder.glob("shard-*.json")):
            total.update(read_json(path))
        return total

    def join(self) -> dict[str, str]:
        """Join the shards to files; a file without rows is not written.

        Returns:
            sha256 (64 hex digits) by file name.
        """
        digests = {}
        for name in self.names:
            found = sorted(self.folder.glob(f"{name}-[0-9]*.jsonl"), key=lambda p: (len(p.name), p.name))
            parts = [path for path in found if path.stat().st_size]
            target = self.folder / f"{name}.jsonl"
            if parts:
                with moved(target) as part, part.open("wb") as joined:
                    for path in parts:
                        with path.open("rb") as stream:
                            shutil.copyfileobj(stream, joined)
                digests[target.name] = sha256_of(target)
            else:
                target.unlink(missing_ok=True)
        return digests

    def forget(self) -> None:
        """Remove the shards of a finished step."""
        for name in ("shard", *self.names):
            for path in self.folder.glob(f"{name}-[0-9]*.json*"):
                path.unlink()

    def _path(self, name: str, number: int) -> Path:
        return self.folder / f"{name}-{number:05d}.{'json' if name == 'shard' else 'jsonl'}"


def lines(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return rows as JSON lines."""
    return "".join(json.dumps(dict(row), ensure_ascii=False) + "\n" for row in rows)


@contextmanager
def moved(target: Path) -> Iterator[Path]:
    """Provide a temporary path to write a file to; it is moved to `target` if the block succeeds.

    Raises:
        BuildError: The file cannot be written.
    """
    try:
        with finished(target) as part:
            yield part
    except OSError as error:
        # An error in a file that the block reads carries the name of that file, and is not about `target`.
        if not str(error.filename or target).startswith(str(target)):
            raise
        raise BuildError(
            f"{target} cannot be written ({error.strerror}); what was finished before is kept. Free "
            "disk space and run the command again."
        ) from error
