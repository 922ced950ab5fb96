"""Interface of an index that is searched by vectors, by words, and with filters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from mar_st.encode.vectors import unit
from mar_st.errors import MarError
from mar_st.index.filters import Filter, parse_filter
from mar_st.online.protocol import encoder_origin

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from mar_st.data.corpus import Entry, FieldType
    from mar_st.encode.folder import VectorFolder

#: How an index names a document within itself: row number or id.
Key: TypeAlias = "int | str"
Where: TypeAlias = "Mapping[str, Any] | str | Filter | None"

MILVUS_PREFIX = "milvus:"

#: Maximum number of documents per query.
MAX_RESULTS = 100_000

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

    Args:
        name: Folder or address.
        about: Description of the index, see the attributes.

    Attributes:
        about: Content of the manifest.
        dim: Dimensions of the vectors.
        similarity: `cosine` or `dot`; for cosine, queries are normalised to length 1.
        space: Digest of the document space, if it is known (`mar_st.model.digest`).
        kind: Kind of index.
        model: Name or folder of the model that encoded the documents, if it is known.
        fields: Names and types of the metadata fields.
        has_texts: Whether the documents' texts are kept.
        has_words: Whether it can be searched by words (BM25).
        settings: Search settings for queries of any encoder.
        efforts: What `mar_st.index.tune.tune` measured per query encoder, by the digest of its modules.
    """

    def __init__(self, name: str, about: dict[str, Any]) -> None:
        self.name, self.about = name, about
        self.dim, self.similarity = int(about["dim"]), str(about["similarity"])
        self.space: str | None = about["space"]
        self.kind: str = about["kind"]
        self.model: str | None = about["model"]
        self.fields: dict[str, FieldType] = dict(about["fields"])
        self.has_texts, self.has_words = bool(about["texts"]), bool(about.get("bm25"))
        self.settings: dict[str, int] = dict(about["search"])
        self.efforts: dict[str, dict[str, Any]] = dict(about.get("efforts", {}))

    @staticmethod
    def open(target: str | Path) -> Index:
        """Open an index.

        Args:
            target: A folder that `mar index build` wrote; or `milvus:PATH.db`, `milvus:http://HOST:PORT`,
                each optionally followed by `/COLLECTION`.

        Raises:
            MarError: The index does not exist or is damaged, or a package is not installed.
        """
        if str(target).startswith(MILVUS_PREFIX):
            from mar_st.index.milvus import MilvusIndex  # lazy: pymilvus

            return MilvusIndex.connect(str(target))
        from mar_st.index.folder import FolderIndex  # lazy: pyarrow

        return FolderIndex.connect(target)

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def find(
        self, vectors: np.ndarray, k: int, where: Filter | None, settings: Mapping[str, int] | None = None
    ) -> ScoredKeys:
        """Return the best documents for checked vectors; see `search`."""

    def find_words(self, texts: Sequence[str], k: int, where: Filter | None) -> ScoredKeys:
        """Return the best documents by BM25; those that share no word with the query are not found.

        Raises:
            MarError: The index has no BM25.
        """
        del texts, k, where
        raise MarError(f"{self.name} has no BM25. Build an index folder with the corpus, without --no-bm25.")

    @abstractmethod
    def documents(self, keys: Sequence[Key]) -> list[Entry]:
        """Return the documents by their keys."""

    @abstractmethod
    def document(self, name: str) -> Entry | None:
        """Return the document of an id, `None` if there is none."""

    @abstractmethod
    def ids(self, keys: Sequence[Key]) -> list[str]:
        """Return the ids of some documents."""

    def search(
        self, vectors: np.ndarray, k: int = 10, *, where: Where = None
    ) -> tuple[list[list[str]], np.ndarray]:
        """Return the best documents for each vector.

        Args:
            vectors: Vectors of queries, `(n, dim)` floats.
            k: Documents per query.
            where: Filter on the metadata, see `mar_st.index.filters`.

        Returns:
            Ids, and scores `(n, k)` float32, by descending score. If fewer documents pass, a list is shorter
            and its scores are filled up with -inf.

        Raises:
            MarError: The vectors or `k` do not fit.
            FilterError: The filter does not fit the metadata fields.
        """
        found = self.find(self.checked(vectors), checked_k(k), parse_filter(where))
        return [self.ids(keys) for keys in found.keys], found.scores

    def effort_of(self, encoder: object) -> dict[str, Any]:
        """Return what was measured for an encoder here: `search` settings, weight of `words`; or nothing."""
        # The digest of a large encoder takes seconds, so it is computed only if there is a choice.
        return self.efforts.get(encoder_origin(encoder) or "", {}) if self.efforts and encoder else {}

    def model_source(self) -> str:
        """Return the model that encoded the documents, to encode queries with.

        Raises:
            MarError: The model is not known.
        """
        if self.model is None:
            raise MarError(f"{self.name} does not say which model it was made with. Give --encoder.")
        return self.model

    def check_addition(self, vectors: VectorFolder, corpus: str | Path | None) -> None:
        """Check that vectors, and the corpus of their documents, fit the index.

        Raises:
            MarError: The vectors have other dimensions or another similarity, or were encoded by another
                model. Or the corpus is missing, although the index keeps texts.
        """
        if (vectors.dim, vectors.similarity) != (self.dim, self.similarity):
            raise MarError(
                f"{vectors.path} has {vectors.dim} dimensions compared by {vectors.similarity}; the index "
                f"{self.name} has {self.dim} by {self.similarity}. Encode with the same settings."
            )
        if vectors.space and self.space and vectors.space != self.space:
            raise MarError(
                f"{vectors.path} was encoded by another model than the index {self.name}. Encode it with "
                f"{self.model or 'the model of the index'}, or build a new index."
            )
        if self.has_texts and corpus is None:
            raise MarError(f"The index {self.name} keeps texts, so give the corpus of the additions.")

    def checked(self, vectors: np.ndarray) -> np.ndarray:
        """Return query vectors as the index compares them, `(n, dim)` float32, C-contiguous.

        Raises:
            MarError: The shape is wrong, or a value is not finite or beyond `LARGEST_VALUE`.
        """
        try:
            given = np.ascontiguousarray(vectors, dtype=np.float32)
        except (ValueError, TypeError) as error:
            raise MarError(f"Vectors of queries are numbers of shape (queries, {self.dim}).") from error
        if given.ndim != 2 or given.shape[1] != self.dim:
            raise MarError(f"Vectors of queries have shape (queries, {self.dim}); got {given.shape}.")
        if not (np.abs(given) <= LARGEST_VALUE).all():  # also false for NaN
            raise MarError(
                f"Vectors of queries hold NaN, or values beyond {LARGEST_VALUE:g}. Normalise them."
            )
        return unit(given) if self.similarity == "cosine" else given


def checked_k(k: int) -> int:
    """Return the requested number of documents.

    Raises:
        MarError: `k` is not a whole number from 1 to `MAX_RESULTS`.
    """
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k <= MAX_RESULTS:
        raise MarError(f"k is the number of documents per query, from 1 to {MAX_RESULTS:,}; got {k!r}.")
    return int(k)
