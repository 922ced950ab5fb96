"""One shard of a folder of vectors: a safetensors file of vectors and an Arrow file of ids and digests.

The header of the vectors holds `check`: digests of the vectors with their facts and of the Arrow file, taken
from memory before they were written. The content read back from the disk is compared with them.
"""

from __future__ import annotations

import hashlib
import json
import math
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
from safetensors.numpy import save

from mar_st.encode.codes import pack
from mar_st.errors import MarError
from mar_st.files import move_file, one_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

#: Columns of the Arrow file.
SCHEMA = pa.schema([("id", pa.string()), ("digest", pa.binary(16))])

_TYPES = {"F32": np.float32, "F16": np.float16, "I8": np.int8, "U8": np.uint8}


@dataclass(frozen=True)
class Header:
    """Header of a safetensors file.

    Attributes:
        tensors: Name -> `dtype`, `shape`, `data_offsets` (from `start`).
        metadata: Metadata given to `write_shard`.
        start: Bytes before the first tensor.
        check: Digests of `vectors` and `table`, see `check_shard`; empty in files of earlier versions.
    """

    tensors: dict[str, dict[str, Any]]
    metadata: dict[str, Any]
    start: int
    check: dict[str, str]


@dataclass(frozen=True)
class Shard:
    """A shard, mapped into memory.

    Attributes:
        tensors: `vectors`, for int8 also `scale`: read-only arrays over the file.
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
                raise MarError(f"{path} is cut short. Encode again, or copy it again.")
            flat = np.frombuffer(content, kind, (end - begin) // kind.itemsize, header.start + begin)
            tensors[name] = flat.reshape(entry["shape"])
        table = read_table(folder / f"{shard_name(number)}.arrow")
        if any(len(tensor) != len(table) for tensor in tensors.values()):
            raise MarError(f"{path} has not one vector for each of {len(table)} ids. Encode again.")
        return cls(tensors, table)


def shard_name(number: int) -> str:
    """Return the name of a shard's files without their endings."""
    return f"{number:06d}"


def read_header(path: Path) -> Header:
    """Return the header of a safetensors file.

    Raises:
        MarError: The file is damaged.
    """
    try:
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if not 2 <= length <= path.stat().st_size - 8:
                raise ValueError("its header is longer than the file")
            content = json.loads(stream.read(length))
        metadata = dict(json.loads(content.pop("__metadata__", {}).get("shard", "{}")))
        check = dict(metadata.pop("check", {}))
        for name, entry in content.items():
            (begin, end), kind, shape = entry["data_offsets"], _TYPES[entry["dtype"]], entry["shape"]
            if not all(type(value) is int and value >= 0 for value in (begin, end, *shape)) or not shape:
                raise ValueError(f"the offsets of {name} are not valid")
            if end - begin != math.prod(shape) * np.dtype(kind).itemsize:
                raise ValueError(f"the size of {name} does not fit its shape")
        if "vectors" not in content:
            raise ValueError("it holds no vectors")
    except (ValueError, AttributeError, TypeError, KeyError, RecursionError, OverflowError) as error:
        raise MarError(f"{path} is damaged ({one_line(error)}). Delete it and encode again.") from error
    return Header(content, metadata, 8 + length, check)


def read_table(path: Path) -> pa.Table:
    """Return ids and digests of a shard, mapped into memory.

    Raises:
        MarError: The file is damaged.
    """
    try:
        with pa.memory_map(str(path)) as source:  # the table read keeps the mapping alive
            table = pa.ipc.open_file(source).read_all()
        table.validate(full=True)  # Arrow itself trusts the offsets in a file
        table = table.select(SCHEMA.names).cast(SCHEMA)
        if any(column.null_count for column in table.columns):
            raise ValueError("ids or digests are missing")
        return table
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise MarError(f"{path} is damaged ({one_line(error)}). Delete it and encode again.") from error


def write_shard(
    folder: Path,
    number: int,
    ids: Sequence[str],
    digests: Sequence[bytes],
    vectors: np.ndarray,
    dtype: str,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Write a shard to temporary files and move them into place, vectors last: they mark it as finished.

    Args:
        folder: The folder `shards`.
        number: Number of the shard.
        ids: Ids of the documents.
        digests: Digests of their texts, 16 bytes each.
        vectors: `(len(ids), dim)` floats.
        dtype: Type to store the vectors in.
        metadata: Metadata for the header.

    Raises:
        MarError: A value is not finite.
    """
    tensors = pack(vectors, dtype)
    name = shard_name(number)
    paths = folder / f"{name}.arrow", folder / f"{name}.safetensors"
    unique = secrets.token_hex(4)  # a machine that Ray considers lost may still be writing
    parts = [path.with_name(f"{path.name}.{unique}.part") for path in paths]
    table = pa.table({"id": list(ids), "digest": list(digests)}, schema=SCHEMA)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, SCHEMA) as writer:
        writer.write_table(table)
    arrow = sink.getvalue()
    parts[0].write_bytes(arrow)
    facts = dict(metadata or {})
    check = {"vectors": _content(facts, tensors), "table": hashlib.sha256(arrow).hexdigest()}
    # A single entry: the order of several would differ between processes.
    header = {"shard": json.dumps({**facts, "check": check}, sort_keys=True)}
    parts[1].write_bytes(save(tensors, metadata=header))
    paths[1].unlink(missing_ok=True)  # a replaced shard must never have new ids beside old vectors
    for part, path in zip(parts, paths, strict=True):
        move_file(part, path)


def check_shard(folder: Path, number: int) -> bool:
    """Compare all bytes of a shard with the digests in its header.

    Returns:
        False if an earlier version wrote the shard, without digests; then only its form is checked.

    Raises:
        MarError: A file is damaged or missing; the message names it.
    """
    paths = [folder / f"{shard_name(number)}.{end}" for end in ("safetensors", "arrow")]
    for path in paths:
        if not path.is_file():
            raise MarError(f"{path} is missing. Encode again.")
    header = read_header(paths[0])
    shard = Shard.open(folder, number)
    if not header.check:
        return False
    with paths[1].open("rb") as stream:
        table = hashlib.file_digest(stream, "sha256").hexdigest()
    digests = {"vectors": _content(header.metadata, shard.tensors), "table": table}
    for path, name in zip(paths, ("vectors", "table"), strict=True):
        if header.check.get(name) != digests[name]:
            raise MarError(f"{path} holds other bytes than were written. Encode again.")
    return True


def _content(facts: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> str:
    """Return one digest of a shard's metadata and vectors."""
    shapes = {name: [tensor.dtype.name, list(tensor.shape)] for name, tensor in tensors.items()}
    digest = hashlib.sha256(json.dumps([dict(facts), shapes], sort_keys=True).encode())
    for name in sorted(tensors):
        content: np.ndarray = np.ascontiguousarray(tensors[name]).reshape(-1).view(np.uint8)
        digest.update(content.data)
    return digest.hexdigest()
