"""Folders whose files are changed one at a time."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

from mar_st.files import entry_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Changed:
    """A folder, one of whose files is replaced for each case; it is whole again afterwards.

    An input is the file's name, a line break and the content.

    Args:
        whole: The folder; it stays as it is.
        place: Where it is copied to.
    """

    def __init__(self, whole: Path, place: Path) -> None:
        self.whole, self.place = whole, place
        shutil.copytree(whole, place)
        self.names = sorted(path.relative_to(whole).as_posix() for path in whole.rglob("*") if path.is_file())

    def seeds(self) -> list[bytes]:
        """All files as inputs."""
        return [name.encode() + b"\n" + (self.whole / name).read_bytes() for name in self.names]

    def with_file(self, data: bytes, read: Callable[[Path], str], relist: Callable[[Path, str], None]) -> str:
        """Read the folder with a file replaced.

        Args:
            data: The input.
            read: Reads the folder.
            relist: Gives the file its new digest in the folder's listing, as a stranger can.
        """
        line, _, content = data.partition(b"\n")
        name = line.decode("utf-8", "replace")
        if name not in self.names:
            return "no such file"
        path = self.place / name
        path.unlink()  # a mapped file keeps its bytes
        path.write_bytes(content)
        try:
            relist(self.place, name)
            return read(self.place)
        finally:
            for changed in {name, *self.listings()}:
                shutil.copyfile(self.whole / changed, self.place / changed)

    def listings(self) -> list[str]:
        """Files that name others."""
        return [name for name in ("manifest.json", "export.json", "digests.json") if name in self.names]


def relist_files(place: Path, name: str) -> None:
    """Bring the `files` of `export.json` or `digests.json` up to date."""
    for listing in ("export.json", "digests.json"):
        path = place / listing
        if path.is_file() and name != listing:
            content = json.loads(path.read_text(encoding="utf-8"))
            if name in content["files"]:
                content["files"][name] = entry_of(place / name)
                path.write_text(json.dumps(content), encoding="utf-8")
