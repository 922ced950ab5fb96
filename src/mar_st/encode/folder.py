"""Folders of vectors: what `mar encode` writes, and indexes, teachers and diversification read.

`manifest.json` says what the vectors are; `shards/NNNNNN.arrow` hold them in the order of the corpus, with
their ids and the digests of their texts. All files are mapped into memory; none is loaded. This module does
not need torch.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mar_st.encode.settings import SHARD_ROWS, VectorType
from mar_st.errors import MarError
from mar_st.files import finished, one_line, read_json, read_record, sha256, write_json
from mar_st.text.texts import text_digest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MANIFEST, SHARDS = "manifest.json", "shards"
FORMAT, VERSION = "mar-vectors", 2


class VectorFolder:
    """A folder of vectors, read without loading it.

    Indexing with a number gives `(dim,)`, with a slice, a mask or a sequence of row numbers `(rows, dim)`,
    float32 in both cases. A folder can be pickled; the pickle holds no vectors.

    Attributes:
        path: The folder.
        manifest: Content of `manifest.json`.
        dim: Number of dimensions of a vector.
        dtype: Type of the stored vectors: float32 or float16.
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
        self._open: dict[int, tuple[np.ndarray, pa.Table]] = {}

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

    @property
    def shape(self) -> tuple[int, int]:
        """Return the number of vectors and of their dimensions."""
        return len(self), self.dim

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
        places = np.arange(len(self))[rows]
        each = np.atleast_1d(places)
        vectors = np.empty((len(each), self.dim), dtype=np.float32)
        numbers = np.searchsorted(self._ends, each, side="right")
        for number in np.unique(numbers).tolist():
            here = np.flatnonzero(numbers == number)
            start = int(self._ends[number - 1]) if number else 0
            vectors[here] = self._shard(number)[0][each[here] - start]
        return vectors if places.ndim else vectors[0]

    def verify(self) -> None:
        """Compare all bytes of every file with the manifest.

        Raises:
            MarError: A file was changed.
        """
        for number, shard in enumerate(self.manifest["shards"]):
            path = shard_file(self.path, number)
            if sha256(path) != shard["sha256"]:
                raise MarError(f"{path} is not the file that was written. Copy it or encode again.")

    def _shard(self, number: int) -> tuple[np.ndarray, pa.Table]:
        """Return the vectors and the table of a shard, which are checked when it is first read."""
        if number not in self._open:
            path = shard_file(self.path, number)
            table = read_table(path)
            expected = _schema(self.dim, self.dtype)
            if table.schema != expected or len(table) != self.manifest["shards"][number]["count"]:
                raise MarError(f"{path} holds other vectors than the manifest says. Encode again.")
            flat = table["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
            if not np.isfinite(flat).all():
                raise MarError(f"{path} holds NaN or infinite values. Encode again.")
            self._open[number] = flat.reshape(-1, self.dim), table
        return self._open[number]

    def _column(self, name: str, kind: pa.DataType) -> pa.ChunkedArray:
        chunks = [chunk for number in range(len(self._ends)) for chunk in self._shard(number)[1][name].chunks]
        return pa.chunked_array(chunks, type=kind)


def shard_file(root: Path, number: int) -> Path:
    """Return the file of a shard."""
    return root / SHARDS / f"{number:06d}.arrow"


def _schema(dim: int, dtype: str) -> pa.Schema:
    kind = pa.float16() if dtype == "float16" else pa.float32()
    return pa.schema([("id", pa.string()), ("digest", pa.binary(16)), ("vector", pa.list_(kind, dim))])


def shard_metadata(path: Path) -> dict[str, Any]:
    """Return the metadata that `write_shard` put into a file."""
    return dict(json.loads((read_table(path).schema.metadata or {}).get(b"shard", b"{}")))


def read_table(path: Path) -> pa.Table:
    """Return a shard (`id`, `digest`, `vector`), mapped into memory."""
    try:
        with pa.memory_map(str(path)) as source:  # the table keeps the mapping alive
            table = pa.ipc.open_file(source).read_all()
        table.validate(full=True)  # Arrow itself trusts the offsets in a file
    except (pa.ArrowException, OSError, ValueError) as error:
        raise MarError(
            f"{path} is missing or damaged ({one_line(error)}). Delete it and encode again."
        ) from error
    return table


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
    """Write a shard, completely or not at all.

    Args:
        root: The folder of vectors.
        number: Number of the shard.
        ids: Ids of the documents.
        digests: Digests of their texts, 16 bytes each.
        vectors: `(len(ids), dim)` floats.
        dtype: Type to store the vectors in.
        metadata: Metadata of the file, see `shard_metadata`.

    Raises:
        MarError: A value is not finite or beyond the range of the type, or an id is not valid Unicode.
    """
    if dtype not in get_args(VectorType):
        raise MarError(f"Vectors are stored as {', '.join(get_args(VectorType))}; got {dtype!r}.")
    with np.errstate(over="ignore"):  # reported below
        stored = np.ascontiguousarray(vectors, dtype=np.float32).astype(dtype)
    fine = np.isfinite(stored).all(axis=1)
    if not fine.all():
        raise MarError(
            f"Vector {int(np.flatnonzero(~fine)[0])} holds NaN or infinite values as {dtype}. Check the "
            "model's weights, or compute in float32 and store float32."
        )
    schema = _schema(stored.shape[1], dtype)
    try:
        column = pa.FixedSizeListArray.from_arrays(pa.array(stored.reshape(-1)), stored.shape[1])
        table = pa.table({"id": list(ids), "digest": list(digests), "vector": column}, schema=schema)
    except UnicodeEncodeError as error:
        raise MarError(f"An id holds half of a surrogate pair ({error}). Correct it.") from error
    _write_table(shard_file(root, number), table, metadata or {})


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
    paths = [shard_file(root, number) for number in range(shards)]
    entries: list[dict[str, Any]] = [
        {"count": len(read_table(path)), "sha256": sha256(path)} for path in paths
    ]
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


def remove_vectors(root: Path, ids: Sequence[str], digests: Sequence[bytes], *, dry_run: bool = False) -> int:
    """Remove vectors from a folder; an interrupted removal is finished by the same call.

    Args:
        root: The folder, maybe unfinished.
        ids: Ids of the documents.
        digests: Digests of texts (16 bytes), whose vectors are removed, too.
        dry_run: Change nothing.

    Returns:
        The number of vectors.
    """
    known, count = read_record(root / MANIFEST), 0
    paths = sorted((root / SHARDS).glob("*.arrow"))
    for path in paths:
        table = read_table(path)
        by_id = pc.is_in(table["id"], value_set=pa.array(ids, pa.string()))
        gone = pc.or_(by_id, pc.is_in(table["digest"], value_set=pa.array(digests, pa.binary(16))))
        here = pc.sum(gone).as_py() or 0
        count += here
        if here and not dry_run:
            _write_table(path, table.filter(pc.invert(gone)))
    if (
        known
        and not dry_run
        and any(sha256(path) != shard["sha256"] for path, shard in zip(paths, known["shards"], strict=False))
    ):
        _written_again(root, known)
    return count


def set_corpus(root: Path, digest: str) -> None:
    """State that a folder holds the vectors of a corpus with another digest, see `mar_st.data.corpus.Scan`.

    So that `mar encode` of this corpus finds the folder finished. The caller has compared ids and texts.
    """
    known = read_json(root / MANIFEST)
    for path in sorted((root / SHARDS).glob("*.arrow")):
        facts = shard_metadata(path)
        if "record" in facts:
            facts["record"]["corpus"] = digest
            _write_table(path, read_table(path), facts)
    _written_again(root, {**known, "corpus": {**known["corpus"], "digest": digest}})


def _write_table(path: Path, table: pa.Table, metadata: Mapping[str, Any] | None = None) -> None:
    if metadata is not None:
        table = table.replace_schema_metadata({"shard": json.dumps(dict(metadata), sort_keys=True)})
    with finished(path) as part, pa.ipc.new_file(str(part), table.schema) as writer:
        writer.write_table(table.combine_chunks())


def _written_again(root: Path, known: Mapping[str, Any]) -> None:
    """Write the manifest of a folder whose shards have changed."""
    about = {name: known[name] for name in ("model", "space", "settings", "corpus")}
    write_manifest(root, len(known["shards"]), **about)


def text_digests(texts: Sequence[str]) -> list[bytes]:
    """Return the first 16 bytes of the sha256 of each text in UTF-8.

    Raises:
        MarError: A text is not valid Unicode.
    """
    try:
        return list(map(text_digest, texts))
    except UnicodeEncodeError as error:
        raise MarError(f"A text holds half of a surrogate pair ({error}). Correct it.") from error
