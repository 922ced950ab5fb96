"""One shard of a folder of vectors: a safetensors file of vectors and an Arrow file of ids and digests."""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
from safetensors.numpy import save

from mar_st.encode.codes import pack
from mar_st.errors import MarError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

#: Columns of the Arrow file.
SCHEMA = pa.schema([("id", pa.string()), ("digest", pa.binary(16))])

_TYPES = {"F32": np.float32, "F16": np.float16, "I8": np.int8, "U8": np.uint8}


@dataclass(frozen=True)
class Header:
    """What a safetensors file says of itself.

    Attributes:
        tensors: Name -> `dtype`, `shape`, `data_offsets` (from `start`).
        metadata: What `write_shard` was given.
        start: Bytes before the first tensor.
    """

    tensors: dict[str, dict[str, Any]]
    metadata: dict[str, Any]
    start: int


@dataclass(frozen=True)
class Shard:
    """A shard, mapped into memory.

    Attributes:
        tensors: `vectors` and maybe `scale`, read-only arrays over the file.
        table: Columns `id` and `digest`.
    """

    tensors: dict[str, np.ndarray]
    table: pa.Table

    @classmethod
    def open(cls, folder: Path, number: int) -> Self:
        """Map both files; no descriptor stays open.

        Raises:
            MarError: A file is damaged.
        """
        path = folder / f"{shard_name(number)}.safetensors"
        header = read_header(path)
        with pa.memory_map(str(path)) as source:
            content = source.read_buffer()
        tensors = {}
        for name, entry in header.tensors.items():
            begin, end = entry["data_offsets"]
            kind = np.dtype(_TYPES[entry["dtype"]])
            if header.start + end > content.size:
                raise MarError(f"{path} is cut short. Encode again, or copy it anew.")
            flat = np.frombuffer(content, kind, (end - begin) // kind.itemsize, header.start + begin)
            tensors[name] = flat.reshape(entry["shape"])
        return cls(tensors, read_table(folder / f"{shard_name(number)}.arrow"))


def shard_name(number: int) -> str:
    """Name of a shard's files without their endings."""
    return f"{number:06d}"


def read_header(path: Path) -> Header:
    """Header of a safetensors file.

    Raises:
        MarError: It is damaged.
    """
    try:
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if not 2 <= length <= path.stat().st_size - 8:
                raise ValueError("its header is longer than the file")
            content = json.loads(stream.read(length))
        metadata = json.loads(content.pop("__metadata__", {}).get("shard", "{}"))
    except (ValueError, AttributeError) as error:
        raise MarError(f"{path} is damaged ({error}). Delete it and encode again.") from error
    return Header(content, metadata, 8 + length)


def read_table(path: Path) -> pa.Table:
    """Ids and digests of a shard, mapped into memory.

    Raises:
        MarError: The file is damaged.
    """
    try:
        with pa.memory_map(str(path)) as source:  # what is read keeps the mapping alive
            return pa.ipc.open_file(source).read_all()
    except (pa.ArrowException, OSError) as error:
        raise MarError(f"{path} is damaged ({error}). Delete it and encode again.") from error


def write_shard(
    folder: Path,
    number: int,
    ids: Sequence[str],
    digests: Sequence[bytes],
    vectors: np.ndarray,
    dtype: str,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Write a shard aside and move it into place, the vectors last: they mark it as finished.

    Args:
        folder: The folder `shards`.
        number: Its number.
        ids: Ids of the documents.
        digests: Digests of their texts, 16 bytes each.
        vectors: `(len(ids), dim)` floats.
        dtype: How they are stored.
        metadata: Written into the header.

    Raises:
        MarError: Values that are not finite.
    """
    tensors = pack(vectors, dtype)
    name = shard_name(number)
    paths = folder / f"{name}.arrow", folder / f"{name}.safetensors"
    unique = secrets.token_hex(4)  # a machine that was given up for lost may still be writing
    parts = [path.with_name(f"{path.name}.{unique}.part") for path in paths]
    table = pa.table({"id": list(ids), "digest": list(digests)}, schema=SCHEMA)
    with pa.OSFile(str(parts[0]), "wb") as sink, pa.ipc.new_file(sink, SCHEMA) as writer:
        writer.write_table(table)
    # One entry: several would be written in an order that changes from process to process.
    said = {"shard": json.dumps(dict(metadata or {}), sort_keys=True)}
    parts[1].write_bytes(save(tensors, metadata=said))
    paths[1].unlink(missing_ok=True)  # of a shard that is replaced: never new ids beside old vectors
    for part, path in zip(parts, paths, strict=True):
        part.replace(path)


def shard_digests(paths: Iterable[Path]) -> dict[str, str]:
    """sha256 of files by name."""
    found = {}
    for path in paths:
        with path.open("rb") as stream:
            found[path.name] = hashlib.file_digest(stream, "sha256").hexdigest()
    return found
