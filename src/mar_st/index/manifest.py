"""The manifest of an index folder: its settings and its immutable segments.

A segment is a folder of files that never change after a manifest names them. An update writes new files and
then replaces the manifest, so a reader sees the index before or after it, and a killed update leaves the
index unchanged. Files that an update no longer needs are listed as `retired` and deleted by the next one.
"""

from __future__ import annotations

import math
import re
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, get_args

from mar_st.files import (
    delete_listed,
    entry_of,
    listed_path,
    read_json,
    refuse_links,
    sync_file,
    sync_folder,
    write_json,
)
from mar_st.index.errors import IndexingError
from mar_st.index.filters import FieldType
from mar_st.index.registry import registered
from mar_st.text.words import TOKENIZERS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MANIFEST, SEGMENTS, LOCK = "manifest.json", "segments", ".lock"
FORMAT, VERSION = "mar-index", 1

#: Files that a segment holds only while it is built.
_TEMPORARY = ("*.part", "words-*.npz", "index.unfinished")

#: Names of segments, by the generation that wrote them, and of lists of deleted rows.
_SEGMENT_NAME = re.compile(r"[0-9]{6,12}")
_DELETED_ROWS_FILE = re.compile(r"deleted/[0-9]{6,12}-[0-9]{6,12}\.npy")


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of an index, checked: its names stay below `segments/` and its numbers agree.

    Raises:
        IndexingError: The folder is not an index, not finished, damaged, or of another version.
    """
    path = folder / MANIFEST
    if not path.is_file():
        if (folder / SEGMENTS).is_dir():
            raise IndexingError(f"The index {folder} is not finished. Run the same 'mar index build' again.")
        raise IndexingError(f"{folder} is not an index (it has no {MANIFEST}). 'mar index build' builds one.")
    try:
        content: dict[str, Any] = read_json(path)
        kind, version = content["format"], content["version"]
    except (ValueError, KeyError, TypeError) as error:
        raise IndexingError(f"{path} is damaged ({error!r}). Build the index again.") from error
    if (kind, version) != (FORMAT, VERSION):
        raise IndexingError(
            f"{folder} holds {kind!r} version {version!r}; this reads {FORMAT} version {VERSION}."
        )
    try:
        _check(content)
        for name in [*files_of(content), *content.get("retired", [])]:
            listed_path(folder, f"{SEGMENTS}/{name}", path, IndexingError)
    except (KeyError, TypeError, AttributeError, _InvalidFieldError) as error:
        raise IndexingError(f"{path} is damaged ({error}). Copy the index again.") from error
    return content


class _InvalidFieldError(Exception):
    """A field of a manifest with a value that a build does not write."""


def _check(content: dict[str, Any]) -> None:
    """Check that the fields that paths and sizes depend on hold what a build writes."""

    def number(holder: dict[str, Any], name: str, least: int) -> int:
        value = holder[name]
        if type(value) is not int or value < least:
            raise _InvalidFieldError(f"{name!r} is a whole number from {least}; got {value!r}")
        return value

    generation = number(content, "generation", 1)
    number(content, "dim", 1)
    if content["similarity"] not in ("cosine", "dot"):
        raise _InvalidFieldError(f"'similarity' must be cosine or dot; got {content['similarity']!r}")
    _check_settings(content)
    if not content["segments"] or not all(isinstance(one, dict) for one in content["segments"]):
        raise _InvalidFieldError("'segments' must be a list of at least one segment")
    kinds = tuple(registered())
    for segment in content["segments"]:
        name, count, live = segment["name"], number(segment, "count", 1), number(segment, "live", 1)
        if not isinstance(name, str) or not _SEGMENT_NAME.fullmatch(name) or int(name) > generation:
            raise _InvalidFieldError(f"segments are called 000001 to {generation:06d}; got {name!r}")
        if segment["kind"] not in kinds:
            raise _InvalidFieldError(f"'kind' is one of {', '.join(kinds)}; got {segment['kind']!r}")
        deleted = segment["deleted"]
        if deleted and not (
            isinstance(deleted["file"], str) and _DELETED_ROWS_FILE.fullmatch(deleted["file"])
        ):
            raise _InvalidFieldError(
                f"rows that were deleted are listed in deleted/*.npy; got {deleted['file']!r}"
            )
        if live != count - (number(deleted, "count", 1) if deleted else 0):
            raise _InvalidFieldError(f"segment {name} has {count} documents, of which {live} are left")
        for entry in [*segment["files"].values(), *([deleted] if deleted else [])]:
            number(entry, "bytes", 0)


def _check_settings(content: dict[str, Any]) -> None:
    """Check that the fields that a search reads hold what a build writes."""
    forms: dict[str, tuple[type, ...]] = {
        "space": (str, type(None)), "model": (dict, type(None)), "fields": (dict,), "texts": (bool,),
        "search": (dict,), "bm25": (dict, type(None)), "kind": (str,), "params": (dict,),
    }  # fmt: skip
    for name, kinds in forms.items():
        if not isinstance(content[name], kinds):
            raise _InvalidFieldError(f"{name!r} has the invalid value {repr(content[name])[:40]}")
    if content["bm25"] is not None and content["bm25"]["tokens"] not in TOKENIZERS:
        raise _InvalidFieldError(
            f"'tokens' is one of {', '.join(TOKENIZERS)}; got {repr(content['bm25']['tokens'])[:40]}"
        )
    if not set(content["fields"].values()) <= set(get_args(FieldType)):
        raise _InvalidFieldError(f"types of fields are {', '.join(get_args(FieldType))}")
    if content["model"] is not None and not isinstance(content["model"].get("name"), str | None):
        raise _InvalidFieldError("the name of the model is not text")
    efforts, matches = content.get("efforts", {}), content.get("matches", {})
    if not has_names(efforts) or not has_names(matches):
        raise _InvalidFieldError("'efforts' and 'matches' name the query encoder of each entry")
    settings = [content["search"], *(effort["search"] for effort in efforts.values())]
    if not all(type(value) is int and value >= 1 for one in settings for value in one.values()):
        raise _InvalidFieldError("search settings are whole numbers from 1")
    if not has_thresholds(matches):
        raise _InvalidFieldError("thresholds of matches are numbers")


def has_names(measurements: Any) -> bool:
    """Return True if every entry of `efforts` or `matches` has the name of its query encoder, or null."""
    return isinstance(measurements, dict) and all(
        isinstance(entry, dict) and "query" in entry and isinstance(entry["query"], str | None)
        for entry in measurements.values()
    )


def has_thresholds(matches: Any) -> bool:
    """Return True if every entry of `matches` has a finite threshold and the share that it may reject."""
    try:
        numbers = [match[name] for match in matches.values() for name in ("threshold", "false_reject")]
    except (AttributeError, KeyError, TypeError):
        return False
    return all(isinstance(number, float) and math.isfinite(number) for number in numbers)


def finish_segment(folder: Path) -> dict[str, dict[str, Any]]:
    """Remove a build's temporary files, sync the others to disk and return their sizes and digests."""
    for pattern in _TEMPORARY:
        for path in folder.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in files:
        sync_file(path)
    for path in {folder, folder.parent, *(path.parent for path in files)}:
        sync_folder(path)
    return {path.relative_to(folder).as_posix(): entry_of(path) for path in files}


def files_of(manifest: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return all files of an index by their path below `segments/`."""
    files: dict[str, dict[str, Any]] = {}
    for segment in manifest["segments"]:
        files |= {f"{segment['name']}/{name}": entry for name, entry in segment["files"].items()}
        if segment["deleted"]:
            files[segment["deleted"]["file"]] = segment["deleted"]
    return files


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Keep other writers out.

    Raises:
        IndexingError: The folder does not exist or holds symbolic links, or another process is changing it.
    """
    from filelock import FileLock, Timeout  # lazy: filelock

    if not folder.is_dir():
        raise IndexingError(f"{folder} is not an index folder. 'mar index build' builds one.")
    refuse_links(folder, IndexingError)
    try:
        with FileLock(folder / LOCK, timeout=0):
            yield
    except Timeout as error:
        raise IndexingError(
            f"Another process is changing the index {folder}. Wait until it is done."
        ) from error


def publish(folder: Path, before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Replace the manifest of an index, within `writing`; unused files are listed or deleted.

    A file that only `before` lists stays until the next manifest: a reader that is about to open `before`
    still finds it, and one that has opened it has it mapped.

    Returns:
        The manifest that was written.
    """
    old_files, new_files = files_of(before), files_of(after)
    unused = [name for name in before.get("retired", []) if name not in old_files and name not in new_files]
    delete_listed(folder, [f"{SEGMENTS}/{name}" for name in unused], folder / MANIFEST, IndexingError)
    content = {**after, "retired": sorted(set(old_files) - set(new_files))}
    write_json(folder / MANIFEST, content)
    return content
