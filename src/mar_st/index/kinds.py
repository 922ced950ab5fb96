"""The kinds of index: what each is built of, what of it must be in memory, and how it is searched.

| kind | compares | in memory per vector |
| --- | --- | --- |
| `exact` | all vectors, float32 | 4 dim |
| `hnsw` | neighbours in a graph; vectors float32, or int8 (`storage`) | 4 dim or dim, + 8.6 M |
| `ivf-pq` | product codes in the nearest cells | m + 8 |
| `int8` | all vectors, one byte per dimension (scalar quantizer) | dim |
| `binary` | all vectors, one bit per dimension | dim / 8 |

All but `exact` and `hnsw` with float32 keep the vectors in float16 beside the index (`vectors.npy`), of which
a search reads the few rows it compares again (`rescore` times as many candidates as results). Every file is
mapped into memory; FAISS 1.15 maps scalar-quantized, HNSW, IVF-PQ and binary indexes with
`IO_FLAG_MMAP_IFC` (with `IO_FLAG_MMAP` only IVF-PQ).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np

from mar_st.files.arrays import load_array
from mar_st.index import flat
from mar_st.index.errors import IndexingError, need

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mar_st.index.mask import Mask

Kind: TypeAlias = Literal["exact", "hnsw", "ivf-pq", "int8", "binary"]
KINDS: tuple[Kind, ...] = get_args(Kind)

VECTORS, INDEX, MEANS = "vectors.npy", "index.faiss", "means.npy"

#: A filter that leaves so many vectors, or this share, is answered by comparing with all of them.
BRUTE_ROWS, BRUTE_SHARE = 20_000, 0.05

#: Vectors that FAISS wants for every centroid that it trains.
TRAINED_PER_CENTROID = 39

#: Settings of building and of searching, by kind, with what is used where nothing is said.
BUILD: dict[Kind, dict[str, Any]] = {
    "exact": {},
    "hnsw": {"M": 32, "efConstruction": 100, "storage": "float32"},
    "ivf-pq": {"nlist": 0, "m": 0, "bits": 0},
    "int8": {},
    "binary": {},
}
SEARCH: dict[Kind, dict[str, int]] = {
    "exact": {},
    "hnsw": {"ef": 64, "rescore": 2},
    "ivf-pq": {"nprobe": 32, "rescore": 10},
    "int8": {"rescore": 2},
    "binary": {"rescore": 20},
}


def settings(kind: str, given: Mapping[str, Any], dim: int, count: int) -> dict[str, Any]:
    """Complete settings of building.

    Args:
        kind: The kind.
        given: Those that were set.
        dim: Dimensions of the vectors.
        count: Number of vectors.

    Raises:
        IndexingError: No such kind or setting, or one that does not fit the vectors.
    """
    if kind not in KINDS:
        raise IndexingError(f"Kinds of index are {', '.join(KINDS)} (or auto); got {kind!r}.")
    known = BUILD[kind]
    unknown = set(given) - set(known)
    if unknown:
        raise IndexingError(
            f"{kind} has no setting {', '.join(map(repr, sorted(unknown)))}; it has "
            f"{', '.join(known) or 'none'}."
        )
    found = {**known, **given}
    if kind == "ivf-pq":
        enough = max(1, count // TRAINED_PER_CENTROID)
        found["nlist"] = min(found["nlist"] or cells(count), enough)
        found["bits"] = min(found["bits"] or 8, max(1, enough.bit_length() - 1))
        found["m"] = found["m"] or subvectors(dim, 4)
        if dim % found["m"]:
            raise IndexingError(f"m must divide the {dim} dimensions of ivf-pq; got {found['m']}.")
    if kind == "hnsw" and (found["storage"] not in ("float32", "int8") or found["M"] < 2):
        raise IndexingError(f"hnsw takes M from 2 and storage float32 or int8; got {found}.")
    return found


def cells(count: int) -> int:
    """Cells of `ivf-pq`: the power of two nearest to twice the root of the number of vectors."""
    return int(2 ** round(np.log2(2 * max(count, 1) ** 0.5)))


def subvectors(dim: int, width: int) -> int:
    """Bytes of a product code: the dimensions over `width`, or the next smaller number that divides them."""
    return next(m for m in range(max(1, dim // width), 0, -1) if dim % m == 0)


def memory(kind: Kind, params: Mapping[str, Any], dim: int, count: int) -> int:
    """Bytes of a built index that searches go through; documents and vectors for rescoring are left out."""
    each = {"exact": 4.0 * dim, "int8": 1.0 * dim, "binary": float(-(-dim // 8))}
    if kind == "hnsw":
        links = 8 * params["M"] * (1 + 1 / max(params["M"] - 1, 1)) + 12
        return int(count * (each["int8" if params["storage"] == "int8" else "exact"] + links))
    if kind == "ivf-pq":
        return int(count * (params["m"] + 8) + params["nlist"] * 4 * dim + 256 * 4 * dim)
    return int(count * each[kind])


class Searchable:
    """A built index of one segment, mapped into memory; safe to search from several threads.

    Args:
        folder: Its files.
        kind: Its kind.

    Attributes:
        vectors: `(n, dim)`, float32 or float16: what scores are computed with.

    Raises:
        IndexingError: A file is damaged.
        FileNotFoundError: A file is not there.
    """

    def __init__(self, folder: Path, kind: Kind) -> None:
        self.folder, self.kind = folder, kind
        self.vectors: np.ndarray
        self._index: Any = None
        if kind != "exact":
            self._index = _read(folder / INDEX, binary=kind == "binary")
        if (folder / VECTORS).is_file():
            # As a plain array: slices of numpy.memmap cost microseconds each.
            self.vectors = _array(folder / VECTORS, mapped=True).view(np.ndarray)
        elif kind == "hnsw":
            self.vectors = _stored(self._index)
        else:
            raise FileNotFoundError(folder / VECTORS)
        self._means = _array(folder / MEANS) if kind == "binary" else None

    def __len__(self) -> int:
        return len(self.vectors)

    def check(self, count: int, dim: int) -> None:
        """Make sure that all files hold so many vectors of so many dimensions, row after row.

        Raises:
            IndexingError: They do not.
        """
        found: list[tuple[str, Any, Any]] = [(VECTORS, self.vectors.shape, (count, dim))]
        if self._index is not None:
            width = -(-dim // 8) * 8 if self.kind == "binary" else dim
            found.append((INDEX, (int(self._index.ntotal), int(self._index.d)), (count, width)))
        if self._means is not None:
            found.append((MEANS, self._means.shape, (dim,)))
        for name, shape, expected in found:
            if shape != expected:
                raise IndexingError(
                    f"{self.folder / name} holds values of shape {shape}; {expected} is expected. Copy the "
                    "index again, or build it again."
                )
        types = {"exact": ("float32",), "hnsw": ("float32", "float16")}.get(self.kind, ("float16",))
        if self.vectors.dtype.name not in types or not self.vectors.flags.c_contiguous:
            raise IndexingError(
                f"{self.folder / VECTORS} holds {self.vectors.dtype}; {' or '.join(types)} is expected, row "
                "after row. Copy the index again, or build it again."
            )

    def search(
        self,
        queries: np.ndarray,
        k: int,
        *,
        mask: Mask | None = None,
        settings: Mapping[str, int] | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The best `k` rows for each query.

        Args:
            queries: `(queries, dim)` float32, C-contiguous.
            k: Rows per query.
            mask: Rows that may be found; default all.
            settings: Settings of searching, see `SEARCH`; default those of the kind.

        Returns:
            Scores, float32, and rows, int64, `(queries, k)`, by falling score; -inf and -1 where there are
            fewer.
        """
        few = mask is not None and mask.count <= max(BRUTE_ROWS, k, int(BRUTE_SHARE * len(self)))
        if self.kind == "exact" or few:
            return flat.search(queries, self.vectors, k, mask=mask)
        wanted = {**SEARCH[self.kind], **(settings or {})}
        scores, rows = self._candidates(queries, k, mask, wanted)
        if self.kind != "hnsw" or self._rescored:
            scores, rows = flat.rescore(queries, self.vectors, rows, k)
        else:
            scores, rows = flat.top(np.where(rows >= 0, scores, -np.inf).astype(np.float32), rows, k)
        short = np.flatnonzero(rows[:, min(k, len(self) if mask is None else mask.count) - 1] < 0)
        if len(short):  # the graph or the cells gave out before there were k
            scores[short], rows[short] = flat.search(queries[short], self.vectors, k, mask=mask)
        return scores, rows

    @property
    def _rescored(self) -> bool:
        return self.vectors.dtype == np.float16

    def _candidates(
        self, queries: np.ndarray, k: int, mask: Mask | None, wanted: Mapping[str, int]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the candidates of the FAISS index: its own scores and rows, `(queries, candidates)`."""
        faiss = need("faiss")
        count = min(len(self), k * wanted["rescore"] if self.kind != "hnsw" or self._rescored else k)
        chosen = {} if mask is None else {"sel": mask.selector()}
        if self.kind == "hnsw":
            # A filter takes most of what the graph walks through, so the walk must be longer.
            share = 1.0 if mask is None else mask.count / len(self)
            ef = min(int(max(wanted["ef"], count * 3 // 2) / share), len(self))
            params = faiss.SearchParametersHNSW(efSearch=ef, **chosen)
        elif self.kind == "ivf-pq":
            params = faiss.SearchParametersIVF(nprobe=min(wanted["nprobe"], self._index.nlist), **chosen)
        else:
            params = faiss.SearchParameters(**chosen)
        if self.kind == "binary":
            distances, rows = self._index.search(bits(queries, self._means), count, params=params)
            return -distances.astype(np.float32), rows
        scores, rows = self._index.search(queries, count, params=params)
        return scores, rows


def bits(vectors: np.ndarray, means: np.ndarray | None) -> np.ndarray:
    """One bit per dimension, whether it is above its mean, `(n, dim / 8)` uint8.

    Vectors of text encoders share a direction; signs without the means would say little.
    """
    return np.packbits(vectors > means, axis=1, bitorder="little")


def _array(path: Path, *, mapped: bool = False) -> np.ndarray:
    """The array of an `.npy` file; a damaged header is named."""
    try:
        return load_array(path, mapped=mapped)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise IndexingError(
            f"{path} is not a readable array ({error}). Copy the index again, or build it again."
        ) from error


def _read(path: Path, *, binary: bool) -> Any:
    faiss = need("faiss")
    read = faiss.read_index_binary if binary else faiss.read_index
    try:
        return read(str(path), faiss.IO_FLAG_MMAP_IFC)
    except RuntimeError as error:
        if not path.is_file():
            raise FileNotFoundError(path) from error
        reason = " ".join(str(error).split())[-200:]
        raise IndexingError(f"{path} cannot be read ({reason}). Build the index again.") from error


def _stored(index: Any) -> np.ndarray:
    """The float32 vectors in a mapped HNSW index, `(n, dim)`; the index must live as long."""
    faiss = need("faiss")
    storage = faiss.downcast_index(index.storage)
    values: np.ndarray = faiss.rev_swig_ptr(storage.get_xb(), storage.ntotal * storage.d)
    return values.reshape(storage.ntotal, storage.d)
