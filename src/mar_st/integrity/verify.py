"""Comparing all bytes of a folder with the digests that were written with it: `mar verify`.

Vectors, indexes and exported encoders list their files in a manifest, models in `digests.json`, packed models
in `packed.json`. Of files without a digest, only the form is checked: sizes must agree with headers, and JSON
must be valid.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError, safe_open

from mar_st.encode import folder as vectors
from mar_st.encode.shards import check_shard
from mar_st.errors import MarError
from mar_st.files import DIGESTS, check_file, files_below, listed_path, one_line, read_digests, read_json
from mar_st.files.arrays import load_array
from mar_st.index.folder import FolderIndex
from mar_st.index.manifest import MANIFEST, SEGMENTS, files_of, read_manifest
from mar_st.model import packed
from mar_st.modules.layout import query_routes, saved_chain
from mar_st.online.listing import LISTING_FILE, Listing, format_of
from mar_st.online.lookup import LookupListing
from mar_st.teachers.journal import (
    HEADER_FILE,
    RECORDS_FILE,
    TeacherJournalError,
    checksums,
    is_journal,
    read_checks,
    record_type,
    width,
)
from mar_st.teachers.vectors import KEY_BYTES, Part

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: Maximum number of changed records of a journal that are listed one by one.
MAX_LISTED_RECORDS = 20


@dataclass(frozen=True)
class Problem:
    """A file that differs from what was written.

    Attributes:
        file: Path of the file.
        found: How the file differs.
        do: Advice to the user.
    """

    file: str
    found: str
    do: str


@dataclass
class Verified:
    """Result of `verify` for one folder.

    Attributes:
        folder: The folder.
        kind: `vectors`, `index`, `export`, `model`, `packed model`, `teacher vectors` or `journal`.
        files: Number of files compared.
        bytes: Their total size.
        digests: True if the folder carries digests.
        problems: Files that are damaged or missing.
        notes: Remarks that are not damage: files without a digest, files that no manifest lists.
    """

    folder: str
    kind: str
    files: int = 0
    bytes: int = 0
    digests: bool = True
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """Return True if nothing is damaged or missing."""
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON."""
        return {"whole": self.whole, **asdict(self)}

    def add(self, path: Path, difference: str, advice: str) -> None:
        """Record a problem."""
        self.problems.append(Problem(str(path), difference, advice))

    def compare(
        self, root: Path, entries: Mapping[str, Mapping[str, Any]], listing: Path, advice: str
    ) -> None:
        """Compare files with their entries in a listing."""
        for name, entry in entries.items():
            try:
                path = listed_path(root, name, listing)
                difference = check_file(path, entry) if path.is_file() else "is missing"
            except (MarError, OSError) as error:
                self.add(root / name, str(error), advice)
                continue
            self.files += 1
            self.bytes += path.stat().st_size if path.is_file() else 0
            if difference is not None:
                self.add(path, difference, advice)


def verify(folder: str | Path) -> Verified:
    """Compare all bytes of a folder with its digests; nothing is changed.

    Args:
        folder: Vectors (`mar encode`), an index (`mar index build`), an exported encoder (`mar export`), a
            model, a packed model, a store of teacher vectors (`MAR_STORE`), or an endpoint's journal in it.

    Raises:
        MarError: The folder does not exist, or is of none of these kinds.
    """
    root = Path(folder)
    if not root.is_dir():
        raise MarError(f"There is no folder {root}.")
    if is_journal(root):
        verified = Verified(str(root), "journal")
        _journal(root, verified)
        return verified
    journals = sorted(path.parent for path in root.glob(f"endpoint-*/{RECORDS_FILE}"))
    if journals or next(root.glob("*/teacher.json"), None) is not None:
        verified = Verified(str(root), "teacher vectors")
        _teachers(root, verified)
        for journal in journals:
            _journal(journal, verified)
        return verified
    for name, kind, check in _KINDS:
        if (root / name).exists() and (name != "manifest.json" or _format(root) == f"mar-{kind}"):
            verified = Verified(str(root), kind)
            check(root, verified)
            return verified
    raise MarError(
        f"{root} is neither vectors, an index, an exported encoder nor a model. 'medteb edition verify' "
        "is for editions, 'medteb verify' for journals of judgements and answers; an index in Milvus is "
        "checked by Milvus itself."
    )


def _format(root: Path) -> str | None:
    """Return the format that a manifest names; for an unreadable one, judge by the folder beside it."""
    try:
        content = read_json(root / "manifest.json")
        return str(content["format"]) if "format" in content else None
    except (ValueError, TypeError, KeyError):
        folders = {"segments": "mar-index", "shards": "mar-vectors"}
        return next((form for name, form in folders.items() if (root / name).is_dir()), None)


def _index(root: Path, verified: Verified) -> None:
    advice = "Copy the index again, or build it again with 'mar index build'."
    try:
        manifest = read_manifest(root)
    except MarError as error:
        verified.add(root / MANIFEST, str(error), advice)
        return
    files = files_of(manifest)
    verified.compare(root / SEGMENTS, files, root / MANIFEST, advice)
    if verified.whole:
        try:
            FolderIndex.open_folder(root)
        except MarError as error:
            verified.add(root, str(error), advice)
    known = {*files, *manifest.get("retired", [])}
    paths = (path for path in (root / SEGMENTS).rglob("*") if path.is_file())
    _note_unlisted(verified, sorted({path.relative_to(root / SEGMENTS).as_posix() for path in paths} - known))
    _note_unsampled(verified, files)


def _vectors(root: Path, verified: Verified) -> None:
    advice = "Run the same 'mar encode' again, which encodes damaged shards again; or copy the file again."
    try:
        manifest = vectors.read_manifest(root)
    except MarError as error:
        verified.add(root / vectors.MANIFEST, str(error), advice)
        return
    entries: dict[str, dict[str, Any]] = {}
    for number, shard in enumerate(manifest["shards"]):
        files = vectors.shard_files(shard)
        entries |= files
        before = len(verified.problems)
        verified.compare(root / vectors.SHARDS, files, root / vectors.MANIFEST, advice)
        if len(verified.problems) == before:
            try:
                check_shard(root / vectors.SHARDS, number)
            except MarError as error:
                verified.add(root / vectors.SHARDS / shard["name"], str(error), advice)
    _note_unsampled(verified, entries)


def _export(root: Path, verified: Verified) -> None:
    advice = "Copy the folder again, or export the encoder again with 'mar export --overwrite'."
    try:
        kind = LookupListing if format_of(root) == LookupListing.form else Listing
        files = kind.read(root).files
    except MarError as error:
        try:  # one file is named; the others are compared, too
            files = read_json(root / LISTING_FILE)["files"]
            verified.compare(root, files, root / LISTING_FILE, advice)
        except (ValueError, KeyError, TypeError, AttributeError):
            files = {}
        if verified.whole:
            verified.add(root / LISTING_FILE, str(error), advice)
        return
    verified.compare(root, files, root / LISTING_FILE, advice)
    _note_unsampled(verified, files)


def _teachers(root: Path, verified: Verified) -> None:
    advice = (
        "'mar verify --repair' deletes this shard, and the next run that asks for its texts computes them."
    )
    for shard in sorted(root.glob("*/*/[0-9]*-*/")):
        before = len(verified.problems)
        try:
            entries = read_digests(shard)
            if entries is None:
                verified.digests = False
                verified.files += 2
            else:
                verified.compare(shard, entries, shard / DIGESTS, advice)
            if len(verified.problems) == before:
                _check_keys(shard)
        except (MarError, ValueError, OSError) as error:
            verified.add(shard / "keys.npy", one_line(error), advice)
    if not verified.digests:
        verified.notes.append(
            f"Some shards are older and carry no {DIGESTS}: only their form and keys were checked."
        )


def _journal(folder: Path, verified: Verified) -> None:
    """Compare every record of an endpoint's journal with its checksum."""
    path = folder / RECORDS_FILE
    verified.files += 1
    try:
        record = record_type(width(folder))
    except TeacherJournalError as error:
        verified.add(folder / HEADER_FILE, str(error), "Copy the file again.")
        return
    size = path.stat().st_size if path.is_file() else 0
    verified.bytes += size
    rows, torn = divmod(size, record.itemsize)
    expected = read_checks(folder)
    actual = checksums(path, record, 0, rows) if rows else np.empty(0, dtype=np.uint32)
    wrong = np.flatnonzero(actual[: len(expected)] != expected[:rows]).tolist()
    for row in wrong[:MAX_LISTED_RECORDS]:
        verified.add(
            path,
            f"record {row} (bytes {row * record.itemsize} to {(row + 1) * record.itemsize}) was changed",
            "It is not used, and the next run that asks for its text buys it again. Or copy the file again.",
        )
    if len(wrong) > MAX_LISTED_RECORDS:
        verified.add(path, f"{len(wrong)} records were changed in all", "Copy the file again.")
    if torn:
        verified.add(
            path,
            f"the last record is torn: {torn} of {record.itemsize} bytes from byte {rows * record.itemsize}",
            "'mar verify --repair' cuts it off, as the next run does.",
        )
    if len(expected) > rows:
        verified.add(
            path,
            f"{len(expected) - rows} of {len(expected)} records are missing at the end",
            "Copy the file again, or let the next run buy them again.",
        )
    if len(expected) < rows:
        verified.notes.append(
            f"{rows - len(expected)} records of {path} have no checksum; they get one when it is used."
        )


def _check_keys(shard: Path) -> None:
    """Make sure that the arrays of a shard of teacher vectors fit each other and its name."""
    keys, vectors = load_array(shard / "keys.npy"), Part.npy(shard / "vectors.npy")
    digest = hashlib.sha256(keys.tobytes()).hexdigest()
    if keys.dtype != f"S{KEY_BYTES}" or keys.shape != vectors.shape[:1]:
        raise MarError(f"holds {keys.dtype} {keys.shape}; {vectors.shape[0]} keys are expected")
    if not digest.startswith(shard.name.partition("-")[2]):
        raise MarError("holds other keys than were written")


def _packed(root: Path, verified: Verified) -> None:
    paths = [path for path in root.rglob("*") if path.is_file()]
    verified.files, verified.bytes = len(paths), sum(path.stat().st_size for path in paths)
    try:
        packed.verify(root)
    except MarError as error:
        verified.add(root / packed.MANIFEST, str(error), "Install or copy the packed model again.")


def _model(root: Path, verified: Verified) -> None:
    advice = "Copy the model again, or save it again from where it was trained."
    try:
        for route in query_routes(root) or ["query"]:
            saved_chain(root, route)
        entries = read_digests(root)
    except (MarError, OSError) as error:
        verified.add(root, str(error), advice)
        return
    names = files_below(root)
    if entries is not None:
        verified.compare(root, entries, root / DIGESTS, advice)
        _note_unlisted(verified, sorted(set(names) - set(entries)))
        return
    verified.digests = False
    verified.notes.append(f"It carries no digests (no {DIGESTS}): only the form of its files was checked.")
    for name in names:
        path = root / name
        verified.files += 1
        verified.bytes += path.stat().st_size
        damage = _form(path)
        if damage is not None:
            verified.add(path, damage, advice)


def _form(path: Path) -> str | None:
    """Return how a file's format is damaged: tensors beyond its end, or invalid JSON."""
    try:
        if path.suffix == ".safetensors":
            try:
                with safe_open(str(path), framework="numpy"):
                    return None
            except SafetensorError as error:
                return f"is damaged ({error})"
        if path.suffix == ".json":
            read_json(path)
    except (OSError, ValueError) as error:
        return f"is damaged ({error})"
    return None


def _note_unlisted(verified: Verified, names: list[str]) -> None:
    if names:
        verified.notes.append(
            f"{len(names)} files are not listed, so nothing reads them ({', '.join(names[:3])}"
            f"{', ...' if len(names) > 3 else ''}). They may be deleted."
        )


def _note_unsampled(verified: Verified, entries: Mapping[str, Mapping[str, Any]]) -> None:
    if any("sample" not in entry for entry in entries.values()):
        verified.notes.append(
            "Files written by an earlier version carry only a digest of the whole: opening the folder "
            "compares only their sizes."
        )


#: File that identifies a kind of folder, the kind, and its check; the first one that exists counts.
_KINDS: tuple[tuple[str, str, Callable[[Path, Verified], None]], ...] = (
    ("packed.json", "packed model", _packed),
    ("export.json", "export", _export),
    ("manifest.json", "index", _index),
    ("manifest.json", "vectors", _vectors),
    ("segments", "index", _index),
    ("shards", "vectors", _vectors),
    ("modules.json", "model", _model),
)
