"""Interface of an index that is searched by vectors, by words, and with filters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeAlias, TypeVar

import numpy as np

from mar_st.files.registered import Registered
from mar_st.index.errors import IndexingError
from mar_st.index.filters import parse_filter
from mar_st.index.source import unit
from mar_st.online.protocol import encoder_origin

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from mar_st.encode import VectorFolder
    from mar_st.index.documents import Stored
    from mar_st.index.filters import FieldType, Filter

#: How an index names a document within itself: row number or id.
Key: TypeAlias = "int | str"
#: Fields of the measurements per query encoder: search settings, thresholds of good matches.
MeasurementField: TypeAlias = Literal["efforts", "matches"]
Where: TypeAlias = "Mapping[str, Any] | str | Filter | None"

MILVUS_PREFIX = "milvus:"

#: Maximum number of documents per query.
MAX_RESULTS = 100_000

#: How far cosine scores may exceed 1: vectors in float16 do not have length exactly 1.
COSINE_TOLERANCE = 0.01

#: Largest value in a query vector; its products with document vectors stay finite in float32.
LARGEST_VALUE = 1e15


class ScoredKeys(NamedTuple):
    """Result of a search.

    Attributes:
        keys: For each query the keys of its documents, by descending score.
        scores: Their scores, `(queries, k)` float32; -inf where there are fewer.
    """

    keys: list[list[Key]]
    scores: np.ndarray


class Index(ABC):
    """Common interface of all indexes; safe to search from several threads.

    Attributes:
        name: Folder or address.
        dim: Dimensions of the vectors.
        similarity: `cosine` or `dot`; for cosine, queries are normalised to length 1.
        space: Digest of the document space, if it is known (`mar_st.model.space`).
        kind: Kind of index.
        model: Name or folder of the model that encoded the documents, if it is known.
        fields: Names and types of the metadata fields.
        has_texts: Whether the documents' texts are kept.
        has_words: Whether it can be searched by words (BM25).
        settings: Search settings for queries of any encoder.
        efforts: Search settings per query encoder, by the digest of its modules (`mar_st.index.effort`).
        matches: Thresholds of good matches per query encoder, by the same digest (`mar_st.index.match`).
    """

    name: str
    dim: int
    similarity: str
    space: str | None
    kind: str
    model: str | None
    fields: dict[str, FieldType]
    has_texts: bool
    has_words: bool
    settings: dict[str, int]
    efforts: dict[str, dict[str, Any]]
    matches: dict[str, dict[str, Any]]

    @staticmethod
    def open(target: str | Path) -> Index:
        """Open an index.

        Args:
            target: A folder that `mar index build` wrote; or `milvus:PATH.db`, `milvus:http://HOST:PORT`,
                each optionally followed by `/COLLECTION`.

        Raises:
            IndexingError: The index does not exist or is damaged.
            PackageError: A package is not installed.
        """
        index_class = STORES.get("milvus" if str(target).startswith(MILVUS_PREFIX) else "folder")
        if index_class is None:
            raise IndexingError(f"{target} is neither a folder nor an address of Milvus.")
        return index_class.connect(str(target))

    @classmethod
    @abstractmethod
    def connect(cls, target: str) -> Self:
        """Open an index of this class, see `open`.

        Raises:
            IndexingError: The index does not exist or is damaged.
            PackageError: A package is not installed.
        """

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def find(
        self, vectors: np.ndarray, k: int, where: Filter | None, settings: Mapping[str, int] | None = None
    ) -> ScoredKeys:
        """Return the best documents for checked vectors; see `search`."""

    @abstractmethod
    def find_words(
        self, texts: Sequence[str], k: int, where: Filter | None, *, deadline: float | None = None
    ) -> ScoredKeys:
        """Return the best documents by BM25; those that share no word with the query are not found."""

    @abstractmethod
    def documents(self, keys: Sequence[Key]) -> list[Stored]:
        """Return the documents by their keys."""

    @abstractmethod
    def find_documents(self, names: Sequence[str]) -> dict[str, Stored]:
        """Return the documents of some ids; ids that the index does not have are left out."""

    def document(self, name: str) -> Stored | None:
        """Return the document of an id, `None` if there is none."""
        return self.find_documents([name]).get(name)

    @abstractmethod
    def ids(self, scored: ScoredKeys) -> list[list[str]]:
        """Return the ids of a search's documents, a list per query."""

    @abstractmethod
    def sample(self, count: int) -> Sequence[tuple[Key, Stored]]:
        """Return documents from all parts of the index with their keys; all of them if there are no more."""

    @abstractmethod
    def keep(self, field: MeasurementField, origin: str, entry: dict[str, Any]) -> None:
        """Write the measurements of a query encoder into the index; open readers do not see them.

        Args:
            field: Kind of measurement.
            origin: Digest of the encoder's modules.
            entry: The measurement.
        """

    def search(
        self,
        vectors: np.ndarray,
        k: int = 10,
        *,
        where: Where = None,
        settings: Mapping[str, int] | None = None,
    ) -> tuple[list[list[str]], np.ndarray]:
        """Return the best documents for each vector.

        Args:
            vectors: Vectors of queries, `(n, dim)` floats.
            k: Documents per query.
            where: Filter on the metadata, see `mar_st.index.filters`.
            settings: Search settings (`ef`, `nprobe`, `rescore`) that override the index's own.

        Returns:
            Ids, and scores `(n, k)` float32, by descending score. If fewer documents pass, a list is shorter
            and its scores are filled up with -inf.

        Raises:
            IndexingError: The vectors, `k` or the settings do not fit.
            FilterError: The filter does not fit the metadata fields.
        """
        scored = self.find(self.checked(vectors), checked_k(k), parse_filter(where), settings)
        return self.ids(scored), scored.scores

    def effort_of(self, encoder: object) -> dict[str, int]:
        """Return the search settings that queries of an encoder need here.

        Args:
            encoder: A query encoder; without one, or with one that the index was not tuned for, the settings
                are those of the index.
        """
        # The digest of a large encoder takes seconds, so it is computed only if there is a choice.
        effort = self.efforts.get(encoder_origin(encoder) or "") if self.efforts and encoder else None
        return {**self.settings, **(effort["search"] if effort else {})}

    def match_of(self, encoder: object) -> dict[str, Any] | None:
        """Return the calibration for the queries of an encoder; `None` if there is none.

        Args:
            encoder: A query encoder.
        """
        return self.matches.get(encoder_origin(encoder) or "") if self.matches and encoder else None

    def model_source(self) -> str:
        """Return the model that encoded the documents, to encode queries with.

        Raises:
            IndexingError: The model is not known.
        """
        if self.model is None:
            raise IndexingError(f"{self.name} does not say which model it was made with. Give --encoder.")
        return self.model

    def check_addition(self, vectors: VectorFolder, corpus: str | Path | None) -> None:
        """Check that vectors, and the corpus of their documents, fit the vectors and texts of the index.

        Args:
            vectors: Folder of the vectors of documents to add or to replace.
            corpus: The documents, if there is a corpus.

        Raises:
            IndexingError: The vectors have other dimensions or another similarity, or were encoded by another
                model. Or the corpus is missing, although the index keeps texts.
        """
        if (vectors.dim, vectors.similarity) != (self.dim, self.similarity):
            raise IndexingError(
                f"{vectors.path} has {vectors.dim} dimensions compared by {vectors.similarity}; the index "
                f"{self.name} has {self.dim} by {self.similarity}. Encode with the same settings."
            )
        if vectors.space and self.space and vectors.space != self.space:
            raise IndexingError(
                f"{vectors.path} was encoded by another model than the index {self.name}. Encode it with "
                f"{self.model or 'the model of the index'}, or build a new index."
            )
        if self.has_texts and corpus is None:
            raise IndexingError(f"The index {self.name} keeps texts, so give the corpus of the additions.")

    def checked(self, vectors: np.ndarray) -> np.ndarray:
        """Return query vectors as the index compares them, `(n, dim)` float32, C-contiguous.

        Raises:
            IndexingError: The shape is wrong, or a value is not finite or beyond `LARGEST_VALUE`.
        """
        try:
            given = np.asarray(vectors)
        except ValueError as error:
            raise IndexingError(
                f"Vectors of queries have shape (queries, {self.dim}); got rows of different lengths."
            ) from error
        if given.ndim != 2 or given.shape[1] != self.dim or given.dtype.kind not in "fiu":
            raise IndexingError(
                f"Vectors of queries have shape (queries, {self.dim}); got {given.dtype} {given.shape}."
            )
        if not np.isfinite(given).all():
            raise IndexingError("Vectors of queries hold NaN or infinite values.")
        with np.errstate(over="ignore"):
            given = np.ascontiguousarray(given, dtype=np.float32)
        if np.abs(given).max(initial=0) > LARGEST_VALUE:
            raise IndexingError(f"Vectors of queries hold values beyond {LARGEST_VALUE:g}. Normalise them.")
        return unit(given) if self.similarity == "cosine" else given


S = TypeVar("S", bound=Index)

#: Classes of indexes, each in the module of `mar_st.index` that has its name.
STORES: Registered[Index] = Registered(__package__ or "mar_st.index", "Store of indexes")


def store(name: str) -> Callable[[type[S]], type[S]]:
    """Register a class of indexes.

    Args:
        name: Prefix of the addresses of such indexes (`milvus`), or `folder`.
    """

    def register(cls: type[S]) -> type[S]:
        STORES.add(name, cls)
        return cls

    return register


def check_scores(scores: np.ndarray, has_document: np.ndarray, similarity: str, name: str) -> None:
    """Raise an error if a score is impossible for the similarity of an index.

    Args:
        scores: `(queries, k)` float32.
        has_document: True for scores that belong to a document, `(queries, k)` bool.
        similarity: `cosine` or `dot`.
        name: The index, for the message.

    Raises:
        IndexingError: A score is not finite, or for cosine beyond 1.
    """
    limit = 1 + COSINE_TOLERANCE if similarity == "cosine" else np.finfo(np.float32).max
    bad = has_document & ~(np.abs(scores) <= limit)  # also true of NaN
    if bad.any():
        cause = "" if similarity == "cosine" else "the vector of the query is too large, or "
        raise IndexingError(
            f"{name} returned {scores[bad][0]:g}, which is not a possible {similarity} score: {cause}the "
            "index is damaged. Run 'mar verify' to find the damaged file."
        )


def checked_k(k: int) -> int:
    """Return the requested number of documents.

    Raises:
        IndexingError: `k` is not a whole number from 1 to `MAX_RESULTS`.
    """
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k <= MAX_RESULTS:
        raise IndexingError(f"k is the number of documents per query, from 1 to {MAX_RESULTS:,}; got {k!r}.")
    return int(k)


def checked_settings(settings: Mapping[str, int], name: str) -> Mapping[str, int]:
    """Return search settings.

    Args:
        settings: The settings.
        name: The index, for the message.

    Raises:
        IndexingError: A value is not a whole number from 1.
    """
    for setting, value in settings.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise IndexingError(
                f"{name}: the search setting {setting!r} is a whole number from 1; got {value!r}."
            )
    return settings
