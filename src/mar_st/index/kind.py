"""Base class of the kinds of index: how one is built, how much memory it needs, and how it is searched."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from mar_st.files.arrays import load_array
from mar_st.index import flat
from mar_st.index.construct import write_vectors
from mar_st.index.errors import IndexingError, need
from mar_st.index.names import INDEX, VECTORS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from mar_st.index.mask import Mask
    from mar_st.index.source import VectorSource

#: If a filter leaves at most this many vectors, or this share, a search compares with all of them.
BRUTE_ROWS, BRUTE_SHARE = 20_000, 0.05


class MilvusIndexType(NamedTuple):
    """The index that Milvus builds for a kind.

    Attributes:
        name: Its name in Milvus.
        params: Build settings.
        ladder: Search settings, from cheap to thorough.
    """

    name: str
    params: dict[str, Any]
    ladder: Sequence[Mapping[str, int]]


class IndexKind(ABC):
    """A built index of one segment, mapped into memory; safe to search from several threads.

    The class describes the kind; an instance searches the files of one folder. A kind is a subclass with
    `@kind("NAME")` (`mar_st.index.registry`) in a module of `mar_st.index.kinds`.

    Args:
        folder: Folder of the segment.

    Attributes:
        kind: Name of the kind.
        BUILD: Build settings, with their defaults.
        SEARCH: Search settings, with their defaults.
        LADDER: Search settings, from cheap to thorough.
        EXACT: Whether every vector is compared unchanged, without a FAISS index and with nothing to tune.
        REFITTED: Build settings that are chosen again when an index is compacted.
        EXACT_UP_TO: Number of vectors up to which an addition is built as `exact`.
        DTYPES: Types that the stored vectors may have; the first one is written.
        vectors: Vectors that scores are computed with, `(n, dim)` float32 or float16.

    Raises:
        IndexingError: A file is damaged.
        FileNotFoundError: A file is missing.
    """

    kind: ClassVar[str]
    BUILD: ClassVar[Mapping[str, Any]] = {}
    SEARCH: ClassVar[Mapping[str, int]] = {}
    REFITTED: ClassVar[tuple[str, ...]] = ()
    LADDER: ClassVar[Sequence[Mapping[str, int]]] = ({},)
    EXACT: ClassVar[bool] = False
    EXACT_UP_TO: ClassVar[int] = 0
    DTYPES: ClassVar[tuple[str, ...]] = ("float16",)

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._index: Any = None if self.EXACT else self._read()
        self.vectors: np.ndarray = self._open_vectors()

    def __len__(self) -> int:
        return len(self.vectors)

    # Known before anything is built.

    @classmethod
    def settings(cls, given: Mapping[str, Any], dim: int, count: int) -> dict[str, Any]:
        """Return the complete build settings.

        Args:
            given: The settings that were given.
            dim: Dimensions of the vectors.
            count: Number of vectors.

        Raises:
            IndexingError: A setting is unknown, or does not fit the vectors.
        """
        unknown = set(given) - set(cls.BUILD)
        if unknown:
            raise IndexingError(
                f"{cls.kind} has no setting {', '.join(map(repr, sorted(unknown)))}; it has "
                f"{', '.join(cls.BUILD) or 'none'}."
            )
        return cls.fit({**cls.BUILD, **given}, dim, count)

    @classmethod
    def fit(cls, params: dict[str, Any], dim: int, count: int) -> dict[str, Any]:
        """Fill in settings that depend on the vectors, and refuse those that do not fit.

        Args:
            params: All settings of `BUILD`.
            dim: Dimensions of the vectors.
            count: Number of vectors.

        Raises:
            IndexingError: A setting does not fit.
        """
        del dim, count
        return params

    @classmethod
    @abstractmethod
    def memory(cls, params: Mapping[str, Any], dim: int, count: int) -> int:
        """Return the bytes of a built index, without documents and vectors for rescoring.

        Args:
            params: Complete build settings.
            dim: Dimensions of the vectors.
            count: Number of vectors.
        """

    @classmethod
    def candidates(cls, dim: int) -> Iterator[dict[str, Any]]:
        """Yield the build settings that `--kind auto` measures, simplest first."""
        del dim
        yield {}

    @classmethod
    def growth(
        cls, settings: Mapping[str, Any], sample_settings: Mapping[str, Any], count: int, sample: int
    ) -> float:
        """Return the factor by which a query takes longer on all vectors than on a sample.

        Args:
            settings: Complete build settings for all vectors.
            sample_settings: Complete build settings for the sample.
            count: Number of all vectors.
            sample: Number of vectors in the sample.
        """
        del settings, sample_settings
        return count / sample

    @classmethod
    def milvus(cls, dim: int, count: int) -> MilvusIndexType | None:
        """Return the index that Milvus builds for this kind; `None` if it has no equivalent."""
        del dim, count
        return None

    # Building.

    @classmethod
    def construct(
        cls,
        folder: Path,
        source: VectorSource,
        params: Mapping[str, Any],
        *,
        like: Path | None = None,
        progress: bool,
    ) -> None:
        """Write the vectors and the index of a segment.

        Complete files that exist are kept, so a killed build resumes.

        Args:
            folder: The segment's folder; it exists.
            source: The vectors.
            params: Complete build settings.
            like: Folder of a segment of the same kind whose trained codes are used.
            progress: Show progress bars.
        """
        if cls.stores_vectors(params) and not (folder / VECTORS).is_file():
            write_vectors(folder / VECTORS, source, cls.DTYPES[0], progress=progress)
        if not cls.EXACT and not (folder / INDEX).is_file():
            cls.build(folder, source, params, like, progress=progress)

    @classmethod
    def stores_vectors(cls, params: Mapping[str, Any]) -> bool:
        """Return True if the vectors are stored beside the index."""
        del params
        return True

    @classmethod
    @abstractmethod
    def build(
        cls,
        folder: Path,
        source: VectorSource,
        params: Mapping[str, Any],
        like: Path | None,
        *,
        progress: bool,
    ) -> None:
        """Write the FAISS index, `index.faiss`; see `construct`."""

    # Opening and searching.

    def _read(self) -> Any:
        return read_index(self.folder / INDEX)

    def _open_vectors(self) -> np.ndarray:
        if not (self.folder / VECTORS).is_file():
            raise FileNotFoundError(self.folder / VECTORS)
        # As a plain array: slices of numpy.memmap cost microseconds each.
        return read_array(self.folder / VECTORS, mapped=True).view(np.ndarray)

    def shapes(self, count: int, dim: int) -> list[tuple[str, Any, Any]]:
        """Return the files with their actual and expected shapes."""
        entries: list[tuple[str, Any, Any]] = [(VECTORS, self.vectors.shape, (count, dim))]
        if self._index is not None:
            entries.append((INDEX, (int(self._index.ntotal), int(self._index.d)), (count, dim)))
        return entries

    def check(self, count: int, dim: int) -> None:
        """Make sure that all files hold `count` vectors of `dim` dimensions, in row-major order.

        Raises:
            IndexingError: A file holds another shape, type or order.
        """
        for name, shape, expected in self.shapes(count, dim):
            if shape != expected:
                raise IndexingError(
                    f"{self.folder / name} holds values of shape {shape}; {expected} is expected. Copy the "
                    "index again, or build it again."
                )
        if self.vectors.dtype.name not in self.DTYPES or not self.vectors.flags.c_contiguous:
            raise IndexingError(
                f"{self.folder / VECTORS} holds {self.vectors.dtype}; {' or '.join(self.DTYPES)} is "
                "expected, in row-major order. Copy the index again, or build it again."
            )

    @property
    def rescored(self) -> bool:
        """Return True if candidates are compared again with the stored vectors."""
        return True

    def search(
        self,
        queries: np.ndarray,
        k: int,
        *,
        mask: Mask | None = None,
        settings: Mapping[str, int] | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the best `k` rows for each query.

        Args:
            queries: `(queries, dim)` float32, C-contiguous.
            k: Rows per query.
            mask: Rows that may be found; default all.
            settings: Search settings, see `SEARCH`; default those of the kind.

        Returns:
            Scores, float32, and rows, int64, `(queries, k)`, by descending score; -inf and -1 where there are
            fewer.
        """
        few = mask is not None and mask.count <= max(BRUTE_ROWS, k, int(BRUTE_SHARE * len(self)))
        if self.EXACT or few:
            return flat.search(queries, self.vectors, k, mask=mask)
        merged = {**self.SEARCH, **(settings or {})}
        count = min(len(self), k * merged["rescore"] if self.rescored else k)
        scores, rows = self.nearest(queries, count, mask, merged)
        if self.rescored:
            scores, rows = flat.rescore(queries, self.vectors, rows, k)
        else:
            scores, rows = flat.top(np.where(rows >= 0, scores, -np.inf).astype(np.float32), rows, k)
        short = np.flatnonzero(rows[:, min(k, len(self) if mask is None else mask.count) - 1] < 0)
        if len(short):  # the graph or the cells ran out before k were found
            scores[short], rows[short] = flat.search(queries[short], self.vectors, k, mask=mask)
        return scores, rows

    def nearest(
        self, queries: np.ndarray, count: int, mask: Mask | None, wanted: Mapping[str, int]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the candidates of the FAISS index: its own scores and rows, `(queries, count)`.

        Args:
            queries: `(queries, dim)` float32, C-contiguous.
            count: Candidates per query.
            mask: Rows that may be found; default all.
            wanted: Complete search settings.
        """
        chosen = {} if mask is None else {"sel": mask.selector()}
        params = self.search_parameters(count, mask, wanted, chosen)
        scores, rows = self._index.search(queries, count, params=params)
        return scores, rows

    def search_parameters(
        self, count: int, mask: Mask | None, wanted: Mapping[str, int], chosen: Mapping[str, Any]
    ) -> Any:
        """Return FAISS's search parameters.

        Args:
            count: Candidates per query.
            mask: Rows that may be found.
            wanted: Complete search settings.
            chosen: Keyword arguments that select the rows of the mask.
        """
        del count, mask, wanted
        return need("faiss").SearchParameters(**chosen)


def read_array(path: Path, *, mapped: bool = False) -> np.ndarray:
    """Return the array of an `.npy` file.

    Raises:
        IndexingError: The file is damaged.
        FileNotFoundError: The file is missing.
    """
    try:
        return load_array(path, mapped=mapped)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise IndexingError(
            f"{path} is not a readable array ({error}). Copy the index again, or build it again."
        ) from error


def read_index(path: Path, *, binary: bool = False) -> Any:
    """Return a FAISS index, mapped into memory.

    Raises:
        IndexingError: The file is damaged.
        FileNotFoundError: The file is missing.
    """
    faiss = need("faiss")
    read = faiss.read_index_binary if binary else faiss.read_index
    try:
        return read(str(path), faiss.IO_FLAG_MMAP_IFC)
    except RuntimeError as error:
        if not path.is_file():
            raise FileNotFoundError(path) from error
        reason = " ".join(str(error).split())[-200:]
        raise IndexingError(f"{path} cannot be read ({reason}). Build the index again.") from error
