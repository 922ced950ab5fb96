"""A disk that loses bytes that were not synced, in any order: its content after a power cut at any moment.

A file keeps the bytes of its last sync; of what was written since, each block of 4 KiB may be there or not,
and the file may be shorter. A name is where it was when its folder was last synced, or where it is now, each
name for itself.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    import pytest

BLOCK = 4096

Key = tuple[int, int]


@dataclass
class Cut:
    """The disk at one moment.

    Attributes:
        root: Key of the folder.
        synced: Names of folders and contents of files as they were last synced.
        now: The same as processes see them.
    """

    root: Key
    synced: dict[Key, dict[str, Key] | bytes]
    now: dict[Key, dict[str, Key] | bytes]

    def write(self, out: Path, values: random.Random | None) -> None:
        """Write a state that the disk may be in; without `values` the one that keeps nothing unsynced."""
        self._write(self.root, out, values)

    def _write(self, key: Key, out: Path, values: random.Random | None) -> None:
        synced, now = self.synced.get(key), self.now.get(key, self.synced.get(key))
        if isinstance(now, bytes) or isinstance(synced, bytes):
            out.write_bytes(_content(synced, now, values))  # type: ignore[arg-type]
            return
        out.mkdir()
        synced, now = synced or {}, now or {}
        for name in sorted({*synced, *now}):
            chosen = now if values is not None and values.random() < 0.5 else synced
            if name in chosen:
                self._write(chosen[name], out / name, values)


def _content(synced: bytes | None, now: bytes | None, values: random.Random | None) -> bytes:
    synced, now = synced or b"", now or b""
    if values is None or synced == now:
        return synced
    how = values.random()
    if how < 0.4:
        return now if how < 0.2 else synced
    if how < 0.6:
        return now[: values.randrange(len(now) + 1)]
    mixed = bytearray(now)
    for start in range(0, len(now), BLOCK):
        if values.random() < 0.5:
            old = synced[start : start + BLOCK]
            size = len(now[start : start + BLOCK])
            mixed[start : start + BLOCK] = old[:size] + bytes(size - len(old[:size]))
    return bytes(mixed)


class Disk:
    """Follows what this process does below a folder; `cuts` are the moments before and after every step.

    Args:
        root: The folder; all of it is on the disk.
        monkeypatch: Puts the calls back.
    """

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.cuts = root, list[Cut]()
        self._held: list[int] = []  # numbers of files that are open are not used again
        self._known: set[Key] = set()
        self._synced = self._read()
        for name in ("fsync", "replace", "rename", "unlink", "rmdir"):
            monkeypatch.setattr(os, name, self._followed(name, getattr(os, name)))

    def close(self) -> None:
        """Note the last moment, and let go of all files."""
        self._note()
        for handle in self._held:
            os.close(handle)

    def _followed(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            self._note()
            result = call(*arguments, **options)
            if name == "fsync":
                self._sync(arguments[0])
            self._note()
            return result

        return run

    def _sync(self, handle: int) -> None:
        path = Path(f"/proc/self/fd/{handle}").readlink()
        if path.is_relative_to(self.root):
            now = self._read()
            status = path.stat()
            self._synced[status.st_dev, status.st_ino] = now[status.st_dev, status.st_ino]

    def _note(self) -> None:
        status = self.root.stat()
        cut = Cut((status.st_dev, status.st_ino), dict(self._synced), self._read())
        if not self.cuts or cut != self.cuts[-1]:
            self.cuts.append(cut)

    def _read(self) -> dict[Key, dict[str, Key] | bytes]:
        contents: dict[Key, dict[str, Key] | bytes] = {}
        for place, folders, files in os.walk(self.root):
            names: dict[str, Key] = {}
            for name in (*folders, *files):
                path = Path(place, name)
                key = self._hold(path)
                names[name] = key
                if name in files:
                    contents[key] = path.read_bytes()
            contents[self._hold(Path(place))] = names
        return contents

    def _hold(self, path: Path) -> Key:
        state = path.stat()
        key = state.st_dev, state.st_ino
        if key not in self._known:
            self._known.add(key)
            self._held.append(os.open(path, os.O_RDONLY))
        return key
