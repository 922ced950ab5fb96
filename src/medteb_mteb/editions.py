"""Editions: the data of a task, identified so that every score says which data it was measured on.

An edition is a folder with a manifest::

    <root>/<TaskName>/
        README.md           dataset card
        manifest.json       name, version, licence, counts, sha256 and size of every data file
        corpus.jsonl  queries.jsonl  qrels/test.tsv

The digest of the canonical manifest is the dataset revision that results carry. The card, `provenance.json`,
licence texts and hidden files are no part of it: correcting a sentence of the card must not separate scores
that were measured on the same data.
"""

from __future__ import annotations

import hashlib
import json
import os
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PrivateAttr,
    ValidationError,
)

from mar_st.errors import MarError
from mar_st.files import JsonError, listed_path, read_json, sha256, write_text
from mar_st.options import invalid

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DATA_VARIABLE = "MEDTEB_DATA"
MANIFEST_NAME = "manifest.json"
#: Record of how and when data were made.
PROVENANCE = "provenance.json"
#: Folder of descriptive statistics, beside the data and computed from them.
STATISTICS = "descriptive_stats"

_Text = Annotated[str, Field(pattern=r"\S")]


def _folder_name(name: str) -> str:
    if name in (".", "..") or set(name) & set("/\\\0"):
        raise ValueError("must be the name of a folder, without slashes")
    return name


class FileEntry(BaseModel):
    """Manifest entry of one data file."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    bytes: NonNegativeInt


class Edition(BaseModel):
    """One edition of one task's data; fields of the manifest that are not declared here are in `extra`.

    Attributes:
        task: The task's name, and the folder's name under a data root.
        name: Edition name, for example `mini`.
        version: Edition version, for example `1.0.0`.
        licence: Licence identifier of the data.
        counts: Number of records by kind, for example `{"queries": 300, "corpus": 5000}`.
        files: Data files by path relative to the folder (`/` separated).
    """

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)

    schema_version: Literal[1]
    task: Annotated[_Text, AfterValidator(_folder_name)]
    name: _Text
    version: _Text
    licence: _Text
    counts: dict[str, NonNegativeInt]
    files: Annotated[dict[str, FileEntry], Field(min_length=1)]
    _path: Path = PrivateAttr(default=Path())

    @property
    def path(self) -> Path:
        """Return the folder on this machine; it is no part of the identity."""
        return self._path

    @property
    def extra(self) -> dict[str, Any]:
        """Return further fields (generator, seed, description, ...); they are part of the identity."""
        return dict(self.model_extra or {})

    def to_manifest(self) -> dict[str, Any]:
        """Return the content of `manifest.json`."""
        return self.model_dump(mode="json")

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
        MarError: The manifest is missing or malformed; the message names the invalid fields.
    """
    folder = Path(folder)
    if not (folder / MANIFEST_NAME).is_file():
        raise MarError(f"{folder} has no {MANIFEST_NAME}. Write one with `medteb edition write {folder}`.")
    return _edition(_read_object(folder / MANIFEST_NAME), folder)


def _edition(content: dict[str, Any], folder: Path) -> Edition:
    where = folder / MANIFEST_NAME
    try:
        edition = Edition.model_validate(content)
    except ValidationError as error:
        raise MarError(f"{where}: {invalid(error)}") from None
    for name in edition.files:
        listed_path(folder, name, where)
    edition._path = folder
    return edition


def _read_object(path: Path) -> dict[str, Any]:
    try:
        content = read_json(path)
    except (JsonError, OSError) as error:
        raise MarError(f"{path} is not valid UTF-8 JSON ({error}). Restore it, or delete it.") from None
    if not isinstance(content, dict):
        raise MarError(f"{path}: expected a JSON object, got {type(content).__name__}.")
    return content


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
    """Hash every data file below a folder, write its manifest, and return the edition.

    Args:
        folder: Edition folder that already holds the data files.
        task: Task name.
        name: Edition name.
        version: Edition version.
        licence: Licence identifier of the data.
        counts: Number of records by kind.
        **extra: Further JSON values to record (generator, seed, description, ...).

    Raises:
        MarError: The folder has no data files, or a field has the wrong type.
    """
    folder = Path(folder)
    files = {
        relative: {"sha256": sha256(path), "bytes": path.stat().st_size}
        for relative, path in data_files(folder)
    }
    named = {"task": task, "name": name, "version": version, "licence": licence, "counts": dict(counts)}
    content = {"schema_version": 1, **named, **extra, "files": files}
    try:
        text = json.dumps(content, ensure_ascii=False, indent=2, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise MarError(f"The manifest of {task!r} cannot be written as JSON: {error}") from None
    edition = _edition(json.loads(text), folder)
    write_text(folder / MANIFEST_NAME, text + "\n")
    return edition


def verify(edition: Edition) -> None:
    """Compare every data file with the manifest.

    Raises:
        MarError: A file is missing, not listed, or differs; the first one is named.
    """
    present = dict(data_files(edition.path))
    for relative in sorted(present.keys() ^ edition.files.keys()):
        where = "in the manifest but missing on disk" if relative in edition.files else "not in the manifest"
        raise MarError(f"{edition.path / relative} is {where}. {_RESTORE}")
    for relative, entry in edition.files.items():
        path = present[relative]
        if path.stat().st_size != entry.bytes or sha256(path) != entry.sha256:
            raise MarError(f"{path} is not the file that the manifest lists. {_RESTORE}")


_RESTORE = "Restore the data, or write a new manifest with `medteb edition write`, so that scores do not mix."


def data_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield (relative `/` path, path) of every data file below a folder, sorted by relative path."""
    files = ((path.relative_to(folder), path) for path in folder.rglob("*") if path.is_file())
    yield from sorted((relative.as_posix(), path) for relative, path in files if _is_data(relative))


def _is_data(relative: Path) -> bool:
    if any(part.startswith(".") or part == "__pycache__" for part in relative.parts):
        return False
    if relative.as_posix() in (MANIFEST_NAME, PROVENANCE) or relative.parts[0] == STATISTICS:
        return False
    if relative.suffix.lower() in {".md", ".part"}:
        return False
    return relative.stem.upper() not in {"LICENSE", "LICENCE", "NOTICE"}


def packaged_root() -> Path:
    """Return the folder of the editions that ship with this package.

    Raises:
        MarError: The installation holds no packaged editions.
    """
    package = Path(__file__).resolve().parent
    # The wheel carries the repository's tasks/ as _tasks/; an editable install reads tasks/ itself.
    for root in (package / "_tasks", package.parents[1] / "tasks"):
        if root.is_dir():
            return root
    raise MarError(f"This installation has no packaged editions in {package / '_tasks'}; reinstall medteb.")


def edition_folder(name_or_folder: str) -> Path:
    """Return a folder if the argument is one, else that of the active edition of the task of this name.

    Raises:
        MarError: See `find_edition`.
    """
    folder = Path(name_or_folder).expanduser()
    # Task names hold no separators and do not begin with a dot.
    looks_like_path = folder.is_dir() or name_or_folder.startswith((".", "~")) or "/" in name_or_folder
    return folder if looks_like_path else find_edition(name_or_folder).path


def find_edition(task: str) -> Edition:
    """Return the active edition: `$MEDTEB_DATA/<task>/` if that folder exists, else the packaged one.

    Only the manifest is read; call `verify` before trusting the files.

    Raises:
        MarError: There is none, or its manifest is missing, malformed or of another task.
    """
    roots = _roots()
    for root in roots:
        if os.path.isdir(root / task):  # noqa: PTH112 -- false for a name that is too long for a file
            edition = load_edition(root / task)
            if edition.task != task:
                raise MarError(f"{root / task / MANIFEST_NAME} is of task {edition.task!r}, not {task!r}.")
            return edition
    known = sorted(_task_names(roots))
    near = get_close_matches(task, known, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(known) or 'none'}."
    where = " and ".join(map(str, roots))
    raise MarError(f"No edition of task {task!r} in {where}. {hint} Set {DATA_VARIABLE} to add your own.")


def _roots() -> list[Path]:
    """Return the folders of editions: the user's, if there is one, before the packaged one."""
    value = os.environ.get(DATA_VARIABLE)
    if not value:
        return [packaged_root()]
    root = os.path.expanduser(value)  # noqa: PTH111 -- keeps ~name of a user that does not exist
    if not os.path.isdir(root):  # noqa: PTH112
        raise MarError(
            f"{DATA_VARIABLE}={value} is not a folder. Point it at a folder that holds <TaskName>/ editions, "
            "or unset it to use the packaged ones."
        )
    return [Path(root), packaged_root()]


def _task_names(roots: list[Path]) -> set[str]:
    return {path.parent.name for root in roots for path in root.glob(f"*/{MANIFEST_NAME}")}


def read_provenance(folder: Path) -> dict[str, Any]:
    """Return the content of the `provenance.json` of a folder; empty if there is none.

    Its keys are `sources`, `anonymisers`, `retrievers`, `judges` and `writers` (settings, and `answered`:
    date, model, number), `consensus` and `contamination`. It holds no text of queries or documents.

    Raises:
        MarError: The file is not a JSON object.
    """
    path = folder / PROVENANCE
    return _read_object(path) if path.exists() else {}


def mappings(content: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """Return the objects of the list under a key; empty without such a list."""
    items = content.get(key)
    return [one for one in items if isinstance(one, dict)] if isinstance(items, list) else []
