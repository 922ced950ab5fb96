"""Editions and their manifests, by which a score states which data it was measured on.

An edition is a folder in the Hub layout with a ``manifest.json`` beside its data files::

    MedTEBRetrieval/
        README.md          the card; not part of the identity
        manifest.json      task, name, version, licence, counts, sha256 and size of every data file
        corpus.jsonl  queries.jsonl  qrels/test.tsv

The digest of the canonical manifest is the dataset revision that results carry. The manifest pins every
*data* file, so equal digests mean equal data. The card, ``provenance.json``, ``croissant.json``, licence
texts and dot files are left out on purpose: correcting a sentence of the card, or making the same data on
another day, must not separate scores that were measured on the same data.

This module is cheap to import: standard library only.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from mar_st.errors import MarError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = [
    "CROISSANT",
    "MANIFEST_NAME",
    "PROVENANCE",
    "STATISTICS",
    "Edition",
    "EditionError",
    "FileEntry",
    "data_files",
    "leads_outside",
    "load_edition",
    "sha256_of",
    "verify",
    "write_manifest",
]

MANIFEST_NAME = "manifest.json"
#: Record of how and when data were made, and its form for data set search. Neither is part of the identity:
#: the same data have the same digest, whatever day they are made on.
PROVENANCE, CROISSANT = "provenance.json", "croissant.json"
SCHEMA_VERSION = 1
#: Folder of descriptive statistics, beside the data and computed from them.
STATISTICS = "descriptive_stats"
_RESERVED_KEYS = ("schema_version", "task", "name", "version", "licence", "counts", "files")


class EditionError(MarError):
    """An edition is missing, its manifest is malformed, or a file differs from the manifest."""


@dataclass(frozen=True)
class FileEntry:
    """Manifest entry of one data file."""

    sha256: str
    bytes: int


@dataclass(frozen=True)
class Edition:
    """One edition of one task's data.

    Attributes:
        task: The task's name, and the folder's name under a data root.
        name: Edition name, for example ``mini``.
        version: Edition version, for example ``1.0.0``.
        licence: Licence identifier of the data.
        counts: Number of records by kind, for example ``{"queries": 300, "corpus": 5000}``.
        files: Data files by path relative to the folder (``/`` separated).
        path: The folder on this machine; not part of the identity.
        extra: Further manifest fields (generator, seed, description, ...); part of the identity.
    """

    task: str
    name: str
    version: str
    licence: str
    counts: dict[str, int]
    files: dict[str, FileEntry]
    path: Path = field(compare=False)
    extra: dict[str, Any] = field(default_factory=dict)

    def to_manifest(self) -> dict[str, Any]:
        """Return the manifest's content as it is written to ``manifest.json``."""
        return {
            "schema_version": SCHEMA_VERSION,
            "task": self.task,
            "name": self.name,
            "version": self.version,
            "licence": self.licence,
            "counts": dict(self.counts),
            **self.extra,
            "files": {path: {"sha256": e.sha256, "bytes": e.bytes} for path, e in self.files.items()},
        }

    @property
    def digest(self) -> str:
        """Return the sha256 (64 hex digits) of the canonical manifest: sorted keys, no spaces, UTF-8."""
        canonical = json.dumps(
            self.to_manifest(), sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False
        )
        return hashlib.sha256(canonical.encode()).hexdigest()


def load_edition(folder: Path | str) -> Edition:
    """Read the manifest of an edition folder; the data files are not touched.

    Raises:
        EditionError: If the manifest is missing or malformed, naming the invalid field.
    """
    folder = Path(folder)
    path = folder / MANIFEST_NAME
    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text)
        if "\\u" in text:  # a lone surrogate cannot be encoded, and so has no digest
            json.dumps(content, ensure_ascii=False).encode()
    except FileNotFoundError:
        raise EditionError(
            f"{folder} has no {MANIFEST_NAME}. Write one with `medteb edition write {folder}`."
        ) from None
    except (ValueError, RecursionError) as error:
        raise EditionError(f"{path} is not valid UTF-8 JSON: {error}") from None
    except OSError as error:
        raise EditionError(f"{path} cannot be read: {error.strerror}") from None
    return _from_manifest(content, folder, str(path))


def write_manifest(
    folder: Path | str,
    *,
    task: str,
    name: str,
    version: str,
    licence: str,
    counts: Mapping[str, int],
    **extra: Any,
) -> Edition:
    """Hashes every data file below ``folder`` and writes its manifest atomically.

    Args:
        folder: Edition folder that already holds the data files.
        task: Task name.
        name: Edition name.
        version: Edition version.
        licence: Licence identifier of the data.
        counts: Number of records by kind.
        **extra: Further JSON values to record (generator, seed, description, ...).

    Returns:
        The edition as read from the manifest.

    Raises:
        EditionError: If the folder has no data files, a field has the wrong type or is reserved.
    """
    folder = Path(folder)
    if clash := sorted(set(extra) & set(_RESERVED_KEYS)):
        raise EditionError(f"The manifest fields {clash} are reserved; choose other names.")
    files = {
        relative: {"sha256": sha256_of(path), "bytes": path.stat().st_size}
        for relative, path in data_files(folder)
    }
    if not files:
        raise EditionError(f"{folder} holds no data files, so there is nothing to write a manifest of.")
    content = {
        "schema_version": SCHEMA_VERSION,
        "task": task,
        "name": name,
        "version": version,
        "licence": licence,
        "counts": dict(counts),
        **extra,
        "files": files,
    }
    try:
        text = json.dumps(content, ensure_ascii=False, indent=2, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise EditionError(f"The manifest of {task!r} cannot be written as JSON: {error}") from None
    # Through JSON and back, so that the returned edition is exactly the one that a reader will see.
    edition = _from_manifest(json.loads(text), folder, str(folder / MANIFEST_NAME))
    part = folder / f"{MANIFEST_NAME}.part"
    part.unlink(missing_ok=True)  # if it were a link, its target would be overwritten
    with part.open("x", encoding="utf-8") as stream:
        stream.write(text + "\n")
        stream.flush()
        os.fsync(stream.fileno())
    part.replace(folder / MANIFEST_NAME)
    return edition


def verify(edition: Edition) -> None:
    """Compare every data file with the manifest: sizes first, then digests.

    Raises:
        EditionError: A file is missing, unlisted, or differs; the first one is named.
    """
    present = dict(data_files(edition.path))
    for relative in sorted(set(edition.files) - set(present)):
        raise EditionError(f"{edition.path / relative} is in the manifest but missing on disk.")
    for relative in sorted(set(present) - set(edition.files)):
        raise EditionError(
            f"{edition.path / relative} is not in the manifest. Remove it, or write a new manifest "
            f"with `medteb edition write {edition.path}`."
        )
    for relative, entry in edition.files.items():
        path = present[relative]
        if leads_outside(path, edition.path):
            raise EditionError(f"{path} is a symbolic link out of {edition.path}. Put the file itself there.")
        size = path.stat().st_size
        if size != entry.bytes:
            raise EditionError(f"{path} has {size} bytes, the manifest says {entry.bytes}.{_RESTORE_HINT}")
        digest = sha256_of(path)
        if digest != entry.sha256:
            raise EditionError(
                f"{path} has sha256 {digest}, the manifest says {entry.sha256}.{_RESTORE_HINT}"
            )


_RESTORE_HINT = " The data was changed: restore it, or write a new manifest so that scores do not mix."


def data_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yields (relative ``/`` path, path) of every data file below ``folder``, sorted by relative path.

    Everything counts except the manifest, descriptive statistics, cards (``*.md``), provenance,
    licence texts, dot files and unfinished ``*.part`` files.
    """
    files = ((path.relative_to(folder), path) for path in folder.rglob("*") if path.is_file())
    yield from sorted((r.as_posix(), path) for r, path in files if _is_data(r))


def leads_outside(path: Path, folder: Path) -> bool:
    """Return True if a path below a folder leads out of it through symbolic links.

    For a folder in the Hub's cache, links into that cache's blobs are allowed.
    """
    real, root = path.resolve(), folder.resolve()
    roots = [root, *(up.parent / "blobs" for up in root.parents if up.name == "snapshots")]
    return not any(real.is_relative_to(allowed) for allowed in roots)


def sha256_of(path: Path) -> str:
    """Return the sha256 (hex) of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _is_data(relative: Path) -> bool:
    if any(part.startswith(".") or part == "__pycache__" for part in relative.parts):
        return False
    if relative.as_posix() in (MANIFEST_NAME, PROVENANCE, CROISSANT) or relative.parts[0] == STATISTICS:
        return False
    if relative.suffix.lower() in {".md", ".part"}:
        return False
    return relative.stem.upper() not in {"LICENSE", "LICENCE", "NOTICE"}


def _from_manifest(content: Any, folder: Path, where: str) -> Edition:
    if not isinstance(content, dict):
        raise EditionError(f"{where}: expected a JSON object, got {type(content).__name__}.")
    if content.get("schema_version") != SCHEMA_VERSION:
        raise EditionError(
            f"{where}: schema_version {content.get('schema_version')!r} is not supported; "
            f"this version of medteb reads {SCHEMA_VERSION}."
        )
    for key in ("task", "name", "version", "licence"):
        if not isinstance(content.get(key), str) or not content[key].strip():
            raise EditionError(f"{where}: {key!r} must be a non-empty string, got {content.get(key)!r}.")
    if content["task"] in (".", "..") or set(content["task"]) & set("/\\\0"):
        raise EditionError(
            f"{where}: 'task' must be the name of a folder, without slashes, got {content['task']!r}."
        )
    counts = content.get("counts")
    if not isinstance(counts, dict) or not all(_is_count(value) for value in counts.values()):
        raise EditionError(f"{where}: 'counts' must map names to whole numbers >= 0, got {counts!r}.")
    files = content.get("files")
    if not isinstance(files, dict) or not files:
        raise EditionError(f"{where}: 'files' must be a non-empty object of path -> sha256 and bytes.")
    return Edition(
        task=content["task"],
        name=content["name"],
        version=content["version"],
        licence=content["licence"],
        counts=counts,
        files={path: _file_entry(path, entry, where) for path, entry in sorted(files.items())},
        path=folder,
        extra={key: value for key, value in content.items() if key not in _RESERVED_KEYS},
    )


def _file_entry(path: str, entry: Any, where: str) -> FileEntry:
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or "\\" in path or pure.as_posix() != path:
        raise EditionError(f"{where}: the path {path!r} must stay inside the edition's folder.")
    ok = isinstance(entry, dict) and set(entry) == {"sha256", "bytes"} and _is_count(entry["bytes"])
    if not ok or not _is_sha256(entry["sha256"]):
        raise EditionError(
            f"{where}: {path!r} needs a 'sha256' of 64 hex digits and a size in 'bytes', got {entry!r}."
        )
    return FileEntry(sha256=entry["sha256"], bytes=entry["bytes"])


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_sha256(value: Any) -> bool:
    return isinstance(value, str) and len(value) == 64 and set(value) <= set("0123456789abcdef")
