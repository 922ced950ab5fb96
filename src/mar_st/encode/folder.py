"""Folders of vectors: what `mar encode` writes and `mar index build` reads.

`manifest.json` says what the vectors are; `shards/NNNNNN.safetensors` hold them in the order of the corpus
(`vectors`, for int8 also `scale`) and `shards/NNNNNN.arrow` their ids and the digests of their texts. All
files are mapped into memory; none is loaded. This module does not need torch.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from mar_st.encode.codes import NUMPY_TYPES, check_type, unpack
from mar_st.encode.shards import Shard, check_shard, read_header, shard_name
from mar_st.errors import MarError
from mar_st.files import check_file, entry_of, listed_path, read_json, write_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mar_st.files import Check

MANIFEST = "manifest.json"
SHARDS = "shards"
FORMAT, VERSION = "mar-vectors", 1

#: Default number of vectors per shard.
SHARD_ROWS = 8192


class VectorsError(MarError):
    """A folder of vectors that cannot be read or written; the message names the file."""


class VectorFolder:
    """A folder of vectors, read without loading it.

    Indexing with a number gives `(dim,)`, with a slice, a mask or a sequence of row numbers `(rows, dim)`,
    float32 in both cases. A folder can be pickled; the pickle holds no vectors.

    Attributes:
        path: The folder.
        manifest: Content of `manifest.json`.
    """

    def __init__(self, path: Path, manifest: dict[str, Any]) -> None:
        self.path, self.manifest = path, manifest
        self._ends = np.cumsum([shard["count"] for shard in manifest["shards"]], dtype=np.int64)
        self._open: dict[int, Shard] = {}

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open a folder; only the manifest is read. A shard is checked when it is first read.

        Raises:
            VectorsError: The folder holds no vectors, is unfinished, damaged or of another version, or a file
                is missing.
        """
        root = Path(path)
        manifest = read_manifest(root)
        for shard in manifest["shards"]:
            for name in shard["files"]:
                file = listed_path(root, f"{SHARDS}/{name}", root / MANIFEST, VectorsError)
                if not file.is_file():
                    raise VectorsError(f"{file} is missing. Encode again, or copy it there.")
        return cls(root, manifest)

    def __len__(self) -> int:
        return int(self.manifest["count"])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": {}}

    @property
    def dim(self) -> int:
        """Return the number of dimensions of a vector."""
        return int(self.manifest["settings"]["dim"])

    @property
    def dtype(self) -> str:
        """Return the dtype of the stored vectors: float32, float16, int8 or binary."""
        return str(self.manifest["settings"]["dtype"])

    @property
    def normalised(self) -> bool:
        """Return True if the vectors have length 1."""
        return bool(self.manifest["settings"]["normalised"])

    @property
    def similarity(self) -> str:
        """Similarity function of the model: cosine or dot."""
        return str(self.manifest["settings"]["similarity"])

    @property
    def space(self) -> str | None:
        """Return the digest of the document space (`mar_st.model.space`), if it is known."""
        space = self.manifest.get("space")
        return str(space) if space else None

    @property
    def ids(self) -> pa.ChunkedArray:
        """Return the ids in order, mapped into memory; a chunk per shard."""
        return self._column("id", pa.string())

    @property
    def text_digests(self) -> pa.ChunkedArray:
        """Return the first 16 bytes of the sha256 of each document's text, in order."""
        return self._column("digest", pa.binary(16))

    def __getitem__(self, rows: int | slice | Sequence[int] | np.ndarray) -> np.ndarray:
        if isinstance(rows, slice):
            return self._range(*rows.indices(len(self)))
        index = _row_numbers(rows, len(self))
        places = index.astype(np.int64).reshape(-1)
        places = np.where(places < 0, places + len(self), places)
        if places.size and (places.min() < 0 or places.max() >= len(self)):
            raise IndexError(f"{self.path} has {len(self)} vectors; row {index} is not among them.")
        vectors = np.empty((len(places), self.dim), dtype=np.float32)
        numbers = np.searchsorted(self._ends, places, side="right")
        for number in np.unique(numbers):
            here = np.flatnonzero(numbers == number)
            vectors[here] = self._rows(int(number), places[here] - self._start(int(number)))
        return vectors[0] if index.ndim == 0 else vectors

    def blocks(self, rows: int = 8192) -> Iterator[tuple[list[str], np.ndarray]]:
        """Yield all vectors in order, at most `rows` at a time: ids and float32 `(rows, dim)`."""
        ids = self.ids
        for start in range(0, len(self), rows):
            yield ids.slice(start, rows).to_pylist(), self[start : start + rows]

    def codes(self, rows: int = 8192) -> Iterator[dict[str, np.ndarray]]:
        """Yield all vectors in order as stored, at most `rows` at a time (views of the mapped files).

        Yields:
            `vectors` `(rows, dim)`, for binary `(rows, dim / 8)` uint8; for int8 also `scale` `(rows,)`.
        """
        for number in range(len(self._ends)):
            tensors = self._shard(number).tensors
            for start in range(0, len(tensors["vectors"]), rows):
                yield {name: tensor[start : start + rows] for name, tensor in tensors.items()}

    def verify(self) -> None:
        """Compare all bytes of every file with the manifest.

        Raises:
            VectorsError: A file was changed or is missing.
        """
        for number in range(len(self.manifest["shards"])):
            self._compare(number, "whole")

    def _compare(self, number: int, check: Check) -> None:
        for name, entry in shard_files(self.manifest["shards"][number]).items():
            path = self.path / SHARDS / name
            try:
                difference = check_file(path, entry, check)
            except FileNotFoundError:
                difference = "is missing"
            if difference is not None:
                raise VectorsError(f"{path} {difference}. Copy it again, or run the same 'mar encode' again.")

    def _range(self, start: int, stop: int, step: int) -> np.ndarray:
        if step != 1:
            return self[np.arange(start, stop, step)]
        vectors = np.empty((max(stop - start, 0), self.dim), dtype=np.float32)
        at = start
        while at < stop:
            number = int(np.searchsorted(self._ends, at, side="right"))
            end = min(stop, int(self._ends[number]))
            first = self._start(number)
            vectors[at - start : end - start] = self._rows(number, slice(at - first, end - first))
            at = end
        return vectors

    def _rows(self, number: int, rows: np.ndarray | slice) -> np.ndarray:
        return unpack(self._shard(number).tensors, self.dtype, rows)

    def _start(self, number: int) -> int:
        return int(self._ends[number - 1]) if number else 0

    def _shard(self, number: int) -> Shard:
        if number not in self._open:
            entry = self.manifest["shards"][number]
            self._compare(number, "sample")
            shard = Shard.open(self.path / SHARDS, number)
            width = self.dim // 8 if self.dtype == "binary" else self.dim
            expected = (entry["count"], width), NUMPY_TYPES[self.dtype]
            layout = {name: (tensor.shape, tensor.dtype.name) for name, tensor in shard.tensors.items()}
            scale = {"scale": ((entry["count"],), "float32")} if self.dtype == "int8" else {}
            if layout != {"vectors": expected, **scale}:
                raise VectorsError(
                    f"{self.path / SHARDS / shard_name(number)}.safetensors holds {layout}; the manifest "
                    f"says {expected[1]} {expected[0]}. Encode again."
                )
            self._open[number] = shard
        return self._open[number]

    def _column(self, name: str, kind: pa.DataType) -> pa.ChunkedArray:
        chunks = [self._shard(number).table[name] for number in range(len(self._ends))]
        return pa.chunked_array([chunk for column in chunks for chunk in column.chunks], type=kind)


def _row_numbers(rows: Any, count: int) -> np.ndarray:
    """Return a number, a sequence of numbers or a mask as row numbers.

    Raises:
        IndexError: It is none of these, or a mask of another length.
    """
    index = np.asarray(rows)
    if index.dtype == bool and index.shape == (count,):
        return np.flatnonzero(index)
    if index.ndim <= 1 and (index.dtype.kind in "iu" or not index.size):
        return index
    raise IndexError(
        f"Rows are given by a number, a slice, a sequence of numbers or a mask of {count}; got an array of "
        f"{index.dtype} with shape {index.shape}."
    )


def text_digests(texts: Sequence[str]) -> list[bytes]:
    """Return the first 16 bytes of the sha256 of each text in UTF-8."""
    return [hashlib.sha256(text.encode()).digest()[:16] for text in texts]


def shard_entry(root: Path, number: int) -> dict[str, Any]:
    """Return the manifest's entry of a finished shard, after comparing its content with its own digests.

    Raises:
        MarError: A file is missing, or the disk returns other bytes than were written.
    """
    name = shard_name(number)
    paths = [root / SHARDS / f"{name}.safetensors", root / SHARDS / f"{name}.arrow"]
    check_shard(root / SHARDS, number)
    header = read_header(paths[0])
    entries = {path.name: entry_of(path) for path in paths}
    return {
        "name": name,
        "count": header.tensors["vectors"]["shape"][0],
        "digest": header.metadata.get("digest"),
        "files": {file: entry.pop("sha256") for file, entry in entries.items()},
        "samples": entries,
    }


def shard_files(shard: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return entries of a shard's files by name: `sha256`, in newer folders also `bytes` and `sample`."""
    samples = shard.get("samples", {})
    return {name: {"sha256": digest, **samples.get(name, {})} for name, digest in shard["files"].items()}


def read_manifest(root: Path) -> dict[str, Any]:
    """Return the manifest of a folder of vectors, checked.

    Raises:
        VectorsError: The folder holds no vectors, or is unfinished, of another version or damaged.
    """
    if not (root / MANIFEST).is_file():
        if (root / SHARDS).is_dir():
            raise VectorsError(
                f"{root} is not finished: it has no {MANIFEST}. Run the same 'mar encode' again; it "
                "resumes with the missing shards."
            )
        raise VectorsError(f"{root} is not a folder of vectors (no {MANIFEST}). 'mar encode' writes one.")
    try:
        manifest: dict[str, Any] = read_json(root / MANIFEST)
        kind, version = manifest["format"], manifest["version"]
    except (ValueError, KeyError, TypeError) as error:
        raise VectorsError(f"{root / MANIFEST} is damaged ({error!r}). Encode again.") from error
    if kind != FORMAT or version != VERSION:
        raise VectorsError(
            f"{root} holds {kind!r} version {version!r}; this program reads {FORMAT} version {VERSION}."
        )
    try:
        _check_manifest(manifest)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise VectorsError(f"{root / MANIFEST} is damaged ({error}). Encode again.") from error
    return manifest


def _check_manifest(manifest: Mapping[str, Any]) -> None:
    """Check that the fields that paths and sizes depend on hold what `write_manifest` writes.

    Raises:
        ValueError: A field is invalid. `KeyError`, `TypeError` and `AttributeError` mean the same.
    """
    settings = manifest["settings"]
    check_type(settings["dtype"])
    for field in (settings["dim"], *(shard["count"] for shard in manifest["shards"])):
        if type(field) is not int or field < 1:
            raise ValueError(f"dimensions and counts are whole numbers from 1; got {field!r}")
    if manifest["count"] != sum(shard["count"] for shard in manifest["shards"]):
        raise ValueError(f"the shards do not add up to {manifest['count']!r} vectors")
    for number, shard in enumerate(manifest["shards"]):
        expected = {f"{shard_name(number)}.{end}" for end in ("safetensors", "arrow")}
        if shard["name"] != shard_name(number) or set(shard["files"]) != expected:
            got = f"{shard['name']!r} with {repr(shard['files'])[:200]}"
            raise ValueError(f"shard {number} has the files {', '.join(sorted(expected))}; got {got}")
        samples = shard.get("samples", {})
        if not all(isinstance(digest, str) for digest in shard["files"].values()) or not all(
            isinstance(sample, dict) for sample in samples.values()
        ):
            raise ValueError(f"shard {number} has invalid digests")


def write_manifest(
    root: Path,
    *,
    model: Mapping[str, Any],
    space: str | None,
    settings: Mapping[str, Any],
    corpus: Mapping[str, Any],
    shards: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Write `manifest.json` and return its content."""
    content = {
        "format": FORMAT,
        "version": VERSION,
        "model": dict(model),
        "space": space,
        "settings": dict(settings),
        "corpus": dict(corpus),
        "count": sum(shard["count"] for shard in shards),
        "shards": [dict(shard) for shard in shards],
    }
    write_json(root / MANIFEST, content)
    return content
