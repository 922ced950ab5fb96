"""`digests.json`: size and SHA-256 of every file of a folder that people exchange, such as a model."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from mar_st.errors import MarError
from mar_st.files.reading import JsonError, listed_path, read_json
from mar_st.files.writing import write_json

if TYPE_CHECKING:
    from pathlib import Path

DIGESTS = "digests.json"


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, 64 hex digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_digests(folder: Path) -> None:
    """Write `digests.json`; cards (`*.md`), which may be corrected, and hidden files are left out."""
    paths = (path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file())
    entries = {
        name.as_posix(): {"bytes": (folder / name).stat().st_size, "sha256": sha256(folder / name)}
        for name in paths
        if name.suffix != ".md" and name.name != DIGESTS and not any(p[0] == "." for p in name.parts)
    }
    write_json(folder / DIGESTS, {"files": entries})


def check_digests(folder: Path, *, whole: bool = False) -> None:
    """Compare a folder with its `digests.json`, if it has one.

    Args:
        folder: The folder.
        whole: Compare the digests of the files, too, not only their sizes.

    Raises:
        MarError: A file is missing or has other bytes than were written, or the listing is damaged.
    """
    listing = folder / DIGESTS
    if not listing.is_file():
        return
    try:
        entries: dict[str, dict[str, Any]] = read_json(listing)["files"]
        for name, entry in entries.items():
            path = listed_path(folder, name, listing)
            same = path.is_file() and path.stat().st_size == entry["bytes"]
            if not same or (whole and sha256(path) != entry["sha256"]):
                raise MarError(f"{path} is not the file that was written. Copy or make {folder} again.")
    except (KeyError, TypeError, AttributeError, JsonError) as error:
        raise MarError(f"{listing} is damaged ({error}). Copy {folder} again.") from error
