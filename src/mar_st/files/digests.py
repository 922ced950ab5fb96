"""Digests of whole files, and of samples of files that are checked in a millisecond.

An entry of a listing is `bytes`, `sha256` (of the whole file) and `sample` (of its size, its beginning, its
end and evenly spaced blocks). The sample finds files that are cut, swapped, zeroed or overwritten in large
parts; only the digest of the whole file finds a single flipped bit.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Literal

from mar_st.errors import MarError
from mar_st.files.names import listed_path
from mar_st.files.reading import JsonError, read_json
from mar_st.files.writing import write_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from typing import BinaryIO

#: Bytes that a sample reads at the beginning and at the end of a file, number of blocks between them, and
#: bytes of a block.
EDGE_BYTES, BLOCK_COUNT, BLOCK_BYTES = 65_536, 16, 4_096

DIGESTS = "digests.json"

#: How much of a file is compared: its size, the sample, or all bytes.
Check = Literal["size", "sample", "whole"]


def entry_of(path: Path) -> dict[str, Any]:
    """Return what a listing says of a file: `bytes`, `sha256`, `sample`."""
    with path.open("rb") as stream:
        whole = hashlib.file_digest(stream, "sha256").hexdigest()
        size = stream.seek(0, 2)
        return {"bytes": size, "sha256": whole, "sample": _sample(stream, size)}


def sample_of(path: Path) -> str:
    """Return the digest of a file's size and of some of its bytes, 64 hex digits."""
    with path.open("rb") as stream:
        return _sample(stream, stream.seek(0, 2))


def check_file(path: Path, entry: Mapping[str, Any], check: Check = "whole") -> str | None:
    """Compare a file with its entry in a listing.

    Args:
        path: The file.
        entry: Entry of the file; fields that the entry lacks are not compared.
        check: How much is compared.

    Returns:
        The difference, for a message ("has 12 bytes; 34 were written"); `None` if there is none.

    Raises:
        FileNotFoundError: The file does not exist.
    """
    if path.is_dir():
        return "is a folder; a file was written"
    size = path.stat().st_size
    if "bytes" in entry and size != entry["bytes"]:
        return f"has {size} bytes; {entry['bytes']} were written"
    if check == "size":
        return None
    if entry.get("sample") is not None and sample_of(path) != entry["sample"]:
        return "holds other bytes than were written"
    if check == "whole" and entry.get("sha256") is not None:
        with path.open("rb") as stream:
            if hashlib.file_digest(stream, "sha256").hexdigest() != entry["sha256"]:
                return "holds other bytes than were written"
    return None


def _sample(stream: BinaryIO, size: int) -> str:
    digest = hashlib.sha256(size.to_bytes(8, "little"))
    if size <= 2 * EDGE_BYTES + BLOCK_COUNT * BLOCK_BYTES:
        stream.seek(0)
        digest.update(stream.read())
        return digest.hexdigest()
    step = (size - 2 * EDGE_BYTES - BLOCK_BYTES) // (BLOCK_COUNT - 1)
    spans = [
        (0, EDGE_BYTES),
        *((EDGE_BYTES + step * number, BLOCK_BYTES) for number in range(BLOCK_COUNT)),
        (size - EDGE_BYTES, EDGE_BYTES),
    ]
    for start, length in spans:
        stream.seek(start)
        digest.update(stream.read(length))
    return digest.hexdigest()


def digests_of(folder: Path) -> dict[str, dict[str, Any]]:
    """Return `bytes` and `sha256` of the files of a folder by name; cards and hidden files are left out."""
    return {
        name: {"bytes": (folder / name).stat().st_size, "sha256": sha256(folder / name)}
        for name in files_below(folder)
    }


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, 64 hex digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_digests(folder: Path) -> None:
    """Write `digests.json`, the sizes and digests of all files of a folder."""
    write_json(folder / DIGESTS, {"files": digests_of(folder)})


def check_digests(folder: Path, *, whole: bool = False, error: type[MarError] = MarError) -> None:
    """Compare a folder with its `digests.json`, if it has one.

    Args:
        folder: The folder.
        whole: Compare the digests of the files, too, not only their sizes.
        error: Class of the error.

    Raises:
        MarError: A file is missing or has other bytes than were written; raised as `error`.
    """
    for name, entry in (read_digests(folder) or {}).items():
        path = folder / name
        if (
            not path.is_file()
            or path.stat().st_size != entry["bytes"]
            or (whole and sha256(path) != entry["sha256"])
        ):
            raise error(f"{path} is not the file that was written. Copy or make {folder} again.")


def refresh_digests(folder: Path, written: Callable[[str], bool]) -> None:
    """Update `digests.json`, if a folder has one, after some of its files were written.

    The other files keep their entries, so that damage does not get a valid digest.

    Args:
        folder: The folder.
        written: Returns whether the file of a name was written.

    Raises:
        MarError: `digests.json` is damaged.
    """
    before = read_digests(folder)
    if before is None:
        return
    entries = {}
    for name in files_below(folder):
        new = name not in before or written(name)
        entries[name] = entry_of(folder / name) if new else before[name]
    write_json(folder / DIGESTS, {"files": entries})


def read_digests(folder: Path) -> dict[str, dict[str, Any]] | None:
    """Return the entries of `digests.json`, by name; `None` if a folder has none.

    Raises:
        MarError: The file is damaged, or names a file outside the folder.
    """
    path = folder / DIGESTS
    if not path.is_file():
        return None
    try:
        content = read_json(path)
        entries: dict[str, dict[str, Any]] = content["files"]
        for name, entry in entries.items():
            listed_path(folder, name, path)
            if type(entry["bytes"]) is not int or not isinstance(entry["sha256"], str):
                raise TypeError(f"the entry of {name} is {entry}")
    except (KeyError, TypeError, AttributeError, JsonError) as error:
        raise MarError(f"{path} is damaged ({error}). Copy the folder again.") from error
    return entries


def files_below(folder: Path) -> list[str]:
    """Return the names of the files that `digests.json` lists, in order."""
    paths = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return sorted(
        name.as_posix()
        for name in paths
        if name.suffix != ".md" and name.as_posix() != DIGESTS and not any(p[0] == "." for p in name.parts)
    )
