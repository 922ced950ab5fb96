"""Digests of files: of all bytes, and of some of them for a check that takes a millisecond.

An entry of a listing is `bytes`, `sha256` (of the whole file) and `sample` (of its size, its beginning, its
end and evenly spaced blocks). The sample finds files that are cut, swapped, zeroed or overwritten in large
parts; a single flipped bit is found by the whole digest alone.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import BinaryIO

#: Bytes that a sample reads at the beginning and at the end of a file, and blocks between them.
EDGE, BLOCKS, BLOCK = 65_536, 16, 4_096

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
        entry: Its entry; what it lacks is not compared.
        check: How much is compared.

    Returns:
        Where they differ, for a message ("has 12 bytes; 34 were written"); `None` where they do not.

    Raises:
        FileNotFoundError: There is no such file.
    """
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
    if size <= 2 * EDGE + BLOCKS * BLOCK:
        stream.seek(0)
        digest.update(stream.read())
        return digest.hexdigest()
    step = (size - 2 * EDGE - BLOCK) // (BLOCKS - 1)
    spans = [(0, EDGE), *((EDGE + step * number, BLOCK) for number in range(BLOCKS)), (size - EDGE, EDGE)]
    for start, length in spans:
        stream.seek(start)
        digest.update(stream.read(length))
    return digest.hexdigest()
