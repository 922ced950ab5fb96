"""The manifest of an index folder: what it is, and which immutable segments it is made of.

A segment is a folder of files that are never changed after they are named in a manifest. An update writes
new files and then replaces the manifest, so a reader sees the index before or after it, and a killed update
leaves it as it was.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mar_st.index.errors import IndexingError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MANIFEST, SEGMENTS, LOCK = "manifest.json", "segments", ".lock"
FORMAT, VERSION = "mar-index", 1

#: What a build leaves in a segment only while it runs.
_TEMPORARY = ("*.part", "words-*.npz", "index.unfinished")


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of an index.

    Raises:
        IndexingError: It is no index, not finished, damaged, or of another version.
    """
    path = folder / MANIFEST
    if not path.is_file():
        if (folder / SEGMENTS).is_dir():
            raise IndexingError(f"The index {folder} is not finished. Run the same 'mar index' again.")
        raise IndexingError(f"{folder} is no index (no {MANIFEST}). 'mar index' builds one.")
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        kind, version = content["format"], content["version"]
    except (ValueError, KeyError, TypeError) as error:
        raise IndexingError(f"{path} is damaged ({error!r}). Build the index anew.") from error
    if (kind, version) != (FORMAT, VERSION):
        raise IndexingError(
            f"{folder} holds {kind} version {version}; this reads {FORMAT} version {VERSION}."
        )
    return content


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write JSON aside and move it into its place."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(json.dumps(content, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    part.replace(path)


def finish_segment(folder: Path) -> dict[str, dict[str, Any]]:
    """Remove what a build needed only while it ran; sizes and digests of what stays."""
    for pattern in _TEMPORARY:
        for path in folder.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): describe(path) for path in files}


def describe(path: Path) -> dict[str, Any]:
    """Size and sha256 of a file."""
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return {"bytes": path.stat().st_size, "sha256": digest}


def files_of(manifest: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """All files of an index by their path below `segments/`."""
    found: dict[str, dict[str, Any]] = {}
    for segment in manifest["segments"]:
        found |= {f"{segment['name']}/{name}": entry for name, entry in segment["files"].items()}
        if segment["deleted"]:
            found[segment["deleted"]["file"]] = segment["deleted"]
    return found


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Keep other writers out.

    Raises:
        IndexingError: Another process changes the index.
    """
    from filelock import FileLock, Timeout

    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / LOCK, timeout=0):
            yield
    except Timeout as error:
        raise IndexingError(
            f"Another process is changing the index {folder}. Wait until it is done."
        ) from error


def remove_unused(folder: Path, *manifests: dict[str, Any]) -> None:
    """Delete files that none of some manifests names.

    A reader that opened an older manifest has its files mapped and keeps them; one that is about to open the
    manifest before the current one still finds them.
    """
    used = {name for manifest in manifests for name in files_of(manifest)}
    root = folder / SEGMENTS
    for path in sorted(root.rglob("*"), reverse=True):
        if path.is_file() and path.relative_to(root).as_posix() not in used:
            path.unlink()
        elif path.is_dir() and not any(path.iterdir()):
            path.rmdir()
