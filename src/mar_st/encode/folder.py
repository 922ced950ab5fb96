"""Folders of vectors: what `mar encode` writes, and indexes, teachers and diversification read.

`manifest.json` says what the vectors are; `shards/NNNNNN.safetensors` hold them in the order of the corpus
(`vectors`, for int8 also `scale`) and `shards/NNNNNN.arrow` their ids and the digests of their texts. All
files are mapped into memory; none is loaded. This module does not need torch.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, get_args

import numpy as np
import pyarrow as pa
from safetensors.numpy import save

from mar_st.encode.settings import SHARD_ROWS, VectorType
from mar_st.errors import MarError
from mar_st.files import finished, one_line, read_json, sha256, write_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MANIFEST, SHARDS = "manifest.json", "shards"
FORMAT, VERSION = "mar-vectors", 1

#: Columns of the Arrow file of a shard.
_SCHEMA = pa.schema([("id", pa.string()), ("digest", pa.binary(16))])

_NUMPY_TYPES = {"F32": "float32", "F16": "float16", "I8": "int8"}


class VectorFolder:
    """A folder of vectors, read without loading it.

    Indexing with a number gives `(dim,)`, with a slice, a mask or a sequence of row numbers `(rows, dim)`,
    float32 in both cases. A folder can be pickled; the pickle holds no vectors.

    Attributes:
        path: The folder.
        manifest: Content of `manifest.json`.
        dim: Number of dimensions of a vector.
        dtype: Type of the stored vectors: float32, float16 or int8.
        normalised: True if the vectors have length 1.
        similarity: Similarity function of the model, `cosine` or `dot`.
        space: Digest of the document space (`mar_st.model.digest`), if it is known.
    """

    def __init__(self, path: Path, manifest: dict[str, Any]) -> None:
        settings = manifest["settings"]
        self.path, self.manifest = path, manifest
        self.dim, self.dtype = int(settings["dim"]), str(settings["dtype"])
        self.normalised, self.similarity = bool(settings["normalised"]), str(settings["similarity"])
        self.space: str | None = manifest.get("space") or None
        if self.dtype not in get_args(VectorType):
            raise ValueError(f"vectors of type {self.dtype}")
        self._ends = np.cumsum([int(shard["count"]) for shard in manifest["shards"]], dtype=np.int64)
        self._open: dict[int, tuple[dict[str, np.ndarray], pa.Table]] = {}

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open a folder; only the manifest is read. A shard is checked when it is first read.

        Raises:
            MarError: The folder holds no vectors, or is unfinished or damaged.
        """
        root = Path(path)
        try:
            manifest = read_json(root / MANIFEST)
            if (manifest["format"], manifest["version"]) != (FORMAT, VERSION):
                raise ValueError(f"its format is not {FORMAT} {VERSION}")
            return cls(root, manifest)
        except (FileNotFoundError, NotADirectoryError) as error:
            unfinished = "is not finished; run the same 'mar encode' again, which resumes"
            other = "is not a folder of vectors; 'mar encode' writes one"
            raise MarError(f"{root} {unfinished if (root / SHARDS).is_dir() else other}.") from error
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise MarError(f"{root / MANIFEST} is damaged ({error!r}). Encode again.") from error

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": {}}

    @property
    def ids(self) -> pa.ChunkedArray:
        """Return the ids in order, mapped into memory."""
        return self._column("id", pa.string())

    @property
    def text_digests(self) -> pa.ChunkedArray:
        """Return the first 16 bytes of the sha256 of each document's text, in order."""
        return self._column("digest", pa.binary(16))

    def __getitem__(self, rows: int | slice | Sequence[int] | np.ndarray) -> np.ndarray:
        if isinstance(rows, slice):
            return self._taken(np.arange(*rows.indices(len(self))))
        index = np.asarray(rows)
        places = np.arange(len(self))[index if index.size else index.astype(np.int64)]
        vectors = self._taken(places.reshape(-1))
        return vectors[0] if index.ndim == 0 else vectors

    def blocks(self, rows: int = SHARD_ROWS) -> Iterator[tuple[list[str], np.ndarray]]:
        """Yield all vectors in order, at most `rows` at a time: ids and float32 `(rows, dim)`."""
        ids = self.ids
        for start in range(0, len(self), rows):
            yield ids.slice(start, rows).to_pylist(), self[start : start + rows]

    def verify(self) -> None:
        """Compare all bytes of every file with the manifest.

        Raises:
            MarError: A file was changed.
        """
        for number, shard in enumerate(self.manifest["shards"]):
            for path in shard_files(self.path, number):
                if sha256(path) != shard["files"].get(path.name):
                    raise MarError(f"{path} is not the file that was written. Copy it or encode again.")

    def _taken(self, places: np.ndarray) -> np.ndarray:
        vectors = np.empty((len(places), self.dim), dtype=np.float32)
        numbers = np.searchsorted(self._ends, places, side="right")
        for number in np.unique(numbers).tolist():
            here = np.flatnonzero(numbers == number)
            start = int(self._ends[number - 1]) if number else 0
            vectors[here] = unpack(self._shard(number)[0], self.dtype, places[here] - start)
        return vectors

    def _shard(self, number: int) -> tuple[dict[str, np.ndarray], pa.Table]:
        """Return the arrays and the table of a shard, which are checked when it is first read."""
        if number not in self._open:
            path = shard_files(self.path, number)[0]
            tensors, table = _mapped(path), read_table(path.with_suffix(".arrow"))
            count = self.manifest["shards"][number]["count"]
            expected: dict[str, tuple[int, ...]] = {"vectors": (count, self.dim)}
            if self.dtype == "int8":
                expected["scale"] = (count,)
            if {name: values.shape for name, values in tensors.items()} != expected or len(table) != count:
                raise MarError(
                    f"{path} does not hold {count} vectors of {self.dim} {self.dtype}. Encode again."
                )
            for values in tensors.values():
                if values.dtype.kind == "f" and not np.isfinite(values).all():
                    raise MarError(f"{path} holds NaN or infinite values. Encode again.")
            self._open[number] = tensors, table
        return self._open[number]

    def _column(self, name: str, kind: pa.DataType) -> pa.ChunkedArray:
        chunks = [chunk for number in range(len(self._ends)) for chunk in self._shard(number)[1][name].chunks]
        return pa.chunked_array(chunks, type=kind)


def shard_files(root: Path, number: int) -> tuple[Path, Path]:
    """Return the files of a shard: its vectors, and its ids with the digests of their texts."""
    path = root / SHARDS / f"{number:06d}"
    return path.with_suffix(".safetensors"), path.with_suffix(".arrow")


def shard_metadata(path: Path) -> dict[str, Any]:
    """Return the metadata that `write_shard` put into a file."""
    return dict(json.loads(_header(path)[0].get("__metadata__", {}).get("shard", "{}")))


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """Return the header of a safetensors file, and the place where its arrays begin."""
    try:
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if not 2 <= length <= path.stat().st_size - 8:
                raise ValueError("its header is longer than the file")
            return dict(json.loads(stream.read(length))), 8 + length
    except (OSError, ValueError, RecursionError) as error:
        raise MarError(
            f"{path} is missing or damaged ({one_line(error)}). Delete it and encode again."
        ) from error


def _mapped(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a safetensors file, mapped into memory; no descriptor stays open."""
    header, start = _header(path)
    header.pop("__metadata__", None)
    with pa.memory_map(str(path)) as source:
        content = np.frombuffer(source.read_buffer(), np.uint8)
    try:
        return {
            name: content[start + entry["data_offsets"][0] : start + entry["data_offsets"][1]]
            .view(_NUMPY_TYPES[entry["dtype"]])
            .reshape(entry["shape"])
            for name, entry in header.items()
        }
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise MarError(f"{path} is damaged ({one_line(error)}). Delete it and encode again.") from error


def read_table(path: Path) -> pa.Table:
    """Return ids and digests of a shard, mapped into memory."""
    try:
        with pa.memory_map(str(path)) as source:  # the table keeps the mapping alive
            table = pa.ipc.open_file(source).read_all()
        table.validate(full=True)  # Arrow itself trusts the offsets in a file
        return table.select(_SCHEMA.names).cast(_SCHEMA)
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise MarError(f"{path} is damaged ({one_line(error)}). Delete it and encode again.") from error


def write_vectors(
    out: str | Path,
    ids: Sequence[str],
    vectors: np.ndarray,
    *,
    model: str | None = None,
    space: str | None = None,
    dtype: VectorType = "float32",
    texts: Sequence[str] | None = None,
    normalised: bool | None = None,
    similarity: str = "cosine",
    shard: int = SHARD_ROWS,
) -> VectorFolder:
    """Write vectors from another source as a folder of vectors.

    Args:
        out: The folder; it must hold no vectors yet.
        ids: Ids, all different.
        vectors: `(len(ids), dim)` floats.
        model: Name of the model that computed the vectors.
        space: Digest of its document space, if it is known.
        dtype: Type to store the vectors in.
        texts: The texts, from which digests are computed; without them, the digests are zeros.
        normalised: Whether the vectors have length 1; by default this is measured.
        similarity: `cosine` or `dot`.
        shard: Vectors per shard.

    Raises:
        MarError: Lengths differ, ids repeat, a value is not finite, or the folder holds vectors.
    """
    root, vectors, names = Path(out), np.asarray(vectors), [str(name) for name in ids]
    if vectors.ndim != 2 or len(vectors) != len(names) or (texts is not None and len(texts) != len(names)):
        raise MarError(f"Expected one vector and text for each of {len(names)} ids; got {vectors.shape}.")
    if len(set(names)) < len(names):
        raise MarError("The ids repeat; every document needs an id of its own.")
    if (root / SHARDS).exists():
        raise MarError(f"{root} holds vectors already; give another folder.")
    if normalised is None:
        lengths = np.linalg.norm(vectors.astype(np.float32, copy=False), axis=1)
        normalised = bool(len(names)) and float(np.abs(lengths - 1).max()) < 1e-3
    for number, start in enumerate(range(0, len(names), shard)):
        rows = slice(start, start + shard)
        digests = text_digests(texts[rows]) if texts is not None else [bytes(16)] * len(names[rows])
        write_shard(root, number, names[rows], digests, vectors[rows], dtype)
    settings = {
        "dim": vectors.shape[1], "dtype": dtype, "normalised": normalised, "similarity": similarity,
        "prompt": "",
    }  # fmt: skip
    return write_manifest(
        root, -(-len(names) // shard), model={"name": model, "digest": None}, space=space, settings=settings
    )


def write_shard(
    root: Path,
    number: int,
    ids: Sequence[str],
    digests: Sequence[bytes],
    vectors: np.ndarray,
    dtype: str,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Write a shard; its vectors are moved into place last and mark it as finished.

    Args:
        root: The folder of vectors.
        number: Number of the shard.
        ids: Ids of the documents.
        digests: Digests of their texts, 16 bytes each.
        vectors: `(len(ids), dim)` floats.
        dtype: Type to store the vectors in.
        metadata: Metadata for the header, see `shard_metadata`.

    Raises:
        MarError: A value is not finite, or an id is not valid Unicode.
    """
    tensors = pack(vectors, dtype)
    path, table_path = shard_files(root, number)
    try:
        table = pa.table({"id": list(ids), "digest": list(digests)}, schema=_SCHEMA)
    except UnicodeEncodeError as error:
        raise MarError(f"An id holds half of a surrogate pair ({error}). Correct it.") from error
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)  # a replaced shard must never have new ids beside old vectors
    with finished(table_path) as part, pa.ipc.new_file(str(part), _SCHEMA) as writer:
        writer.write_table(table)
    with finished(path) as part:
        # A single entry: the order of several would differ between processes.
        part.write_bytes(save(tensors, metadata={"shard": json.dumps(dict(metadata or {}), sort_keys=True)}))


def write_manifest(
    root: Path,
    shards: int,
    *,
    model: Mapping[str, Any],
    space: str | None,
    settings: Mapping[str, Any],
    corpus: Mapping[str, Any] | None = None,
) -> VectorFolder:
    """Write the manifest of a folder with this number of shards, and open it."""
    entries = []
    for number in range(shards):
        files = shard_files(root, number)
        count = _header(files[0])[0]["vectors"]["shape"][0]
        entries.append({"count": count, "files": {path.name: sha256(path) for path in files}})
    content = {
        "format": FORMAT,
        "version": VERSION,
        "model": dict(model),
        "space": space,
        "settings": dict(settings),
        "corpus": dict(corpus or {"path": None, "digest": None}),
        "count": sum(entry["count"] for entry in entries),
        "shards": entries,
    }
    write_json(root / MANIFEST, content)
    return VectorFolder.open(root)


def text_digests(texts: Sequence[str]) -> list[bytes]:
    """Return the first 16 bytes of the sha256 of each text in UTF-8.

    Raises:
        MarError: A text is not valid Unicode.
    """
    try:
        return [hashlib.sha256(text.encode()).digest()[:16] for text in texts]
    except UnicodeEncodeError as error:
        raise MarError(f"A text holds half of a surrogate pair ({error}). Correct it.") from error


def pack(vectors: np.ndarray, dtype: str) -> dict[str, np.ndarray]:
    """Return vectors `(n, dim)` float32 converted to a storage type.

    int8 is symmetric with one scale per vector, its largest absolute value divided by 127.

    Returns:
        `vectors` `(n, dim)`; for int8 also `scale` `(n,)` float32.

    Raises:
        MarError: A value is not finite, or beyond the range of float16.
    """
    if dtype not in get_args(VectorType):
        raise MarError(f"Vectors are stored as {', '.join(get_args(VectorType))}; got {dtype!r}.")
    vectors = np.ascontiguousarray(vectors, dtype=np.float32)
    with np.errstate(over="ignore"):  # reported below
        converted = vectors.astype("float16") if dtype == "float16" else vectors
    fine = np.isfinite(converted).all(axis=1)
    if not fine.all():
        raise MarError(
            f"Vector {int(np.flatnonzero(~fine)[0])} holds NaN or infinite values as {dtype}. Check the "
            "model's weights, or compute in float32 and store float32."
        )
    if dtype == "int8":
        scale = (np.abs(vectors).max(axis=1, initial=0.0) / 127).astype(np.float32)
        steps = vectors / np.where(scale > 0, scale, 1)[:, None]
        return {"vectors": np.rint(steps).clip(-127, 127).astype(np.int8), "scale": scale}
    return {"vectors": converted}


def unpack(tensors: Mapping[str, np.ndarray], dtype: str, rows: np.ndarray | slice) -> np.ndarray:
    """Return some rows of stored vectors as float32 `(rows, dim)`."""
    stored = tensors["vectors"][rows]
    if dtype == "int8":
        scaled: np.ndarray = stored.astype(np.float32) * tensors["scale"][rows][:, None]
        return scaled
    return stored.astype(np.float32)
