"""What a file or folder was made of: the records of the steps that wrote it, and digests."""

from __future__ import annotations

import hashlib
import os
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mar_st.errors import MarError
from mar_st.files import read_record, regular

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: Record of a step in its folder, see `medteb_mteb.curation.step`.
STEP_FILE = "step.json"
#: Beginning of the name of a data set of the Hub, `hub:ORG/NAME`, that is given instead of a path.
HUB = "hub:"


def lineage(path: str | Path) -> list[dict[str, Any]]:
    """Return the records of the steps that made a file or folder, the first one first; empty for raw data.

    Raises:
        MarError: The last step is not finished.
    """
    folder = next((one for one in (Path(path), Path(path).parent) if (one / STEP_FILE).is_file()), None)
    record = folder and read_record(folder / STEP_FILE)
    if not record:
        return []
    if not record["finished"]:
        raise MarError(f"The step that writes {folder} is not finished; run it to its end first.")
    before: list[dict[str, Any]] = record["before"]
    return [*before, {key: value for key, value in record.items() if key not in ("before", "inputs")}]


def provenance_of(paths: Iterable[str | Path]) -> dict[str, list[dict[str, Any]]]:
    """Return how some data were made, as the steps before have recorded it; each entry once."""
    records = {one["fingerprint"]: one for path in paths for one in lineage(path)}
    merged: dict[str, list[dict[str, Any]]] = {}
    for key, entries in (item for record in records.values() for item in record["provenance"].items()):
        known = merged.setdefault(key, [])
        known += [entry for entry in entries if entry not in known]
    return merged


def digest_of(path: str | Path) -> str:
    """Return the digest (64 hex digits) of a step's output, or of a raw file or folder.

    Digests of raw texts are concealed: with a plain one, someone who has the anonymised texts could try
    identifiers until the digest matches. A name of the Hub is its own digest.

    Raises:
        MarError: The file or folder does not exist.
    """
    if str(path).startswith(HUB):
        return str(path)
    place = regular(Path(path))
    if lineage(place) and place.is_dir():
        return str(lineage(place)[-1]["result"])
    if place.is_file():
        return _concealed(_file_digest(place))
    if not place.is_dir():
        raise MarError(f"There is no {path}.")
    return _concealed(folder_digest(place))


def folder_digest(folder: Path) -> str:
    """Return the digest of the files of a folder, without hidden ones and the record of its step."""
    digest = hashlib.sha256()
    for file in _files(folder):
        name = os.fsencode(file.relative_to(folder).as_posix())
        digest.update(b"%s %s\n" % (name, _file_digest(file).encode()))
    return digest.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder in order, without hidden ones and the record of its step."""
    for file in sorted(folder.rglob("*")):
        names = file.relative_to(folder).parts
        if file.is_file() and names != (STEP_FILE,) and not any(name.startswith(".") for name in names):
            yield file


def _file_digest(file: Path) -> str:
    status = file.stat()
    return _digest_of_state(file, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=100_000)
def _digest_of_state(file: Path, *state: int) -> str:
    """Return the SHA-256 of a file; `state` tells that it changed. Several steps read the same file."""
    del state
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@lru_cache(maxsize=1000)
def _concealed(digest: str) -> str:
    """Return a digest of a digest that takes a twentieth of a second to compute."""
    return hashlib.scrypt(digest.encode(), salt=b"medteb raw texts", n=1 << 14, r=8, p=1, dklen=32).hex()
