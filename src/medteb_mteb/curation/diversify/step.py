"""Diversification as a step of a build, see `medteb_mteb.curation.files.step`."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mar_st.errors import NotFiniteVectorError
from medteb_mteb.curation.diversify.centres import VECTORS_PER_LIST, find_centres, sample_rows
from medteb_mteb.curation.diversify.core import make_filter
from medteb_mteb.curation.diversify.vectors import NotFiniteError
from medteb_mteb.curation.files.read import read_texts
from medteb_mteb.curation.files.records import BuildError, Dropped, Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    import torch

    from medteb_mteb.curation.diversify.core import Search
    from medteb_mteb.curation.diversify.filter import DiversityFilter
    from medteb_mteb.curation.diversify.rule import SelectionRule
    from medteb_mteb.curation.diversify.sources import TextVectors
    from medteb_mteb.curation.diversify.vectors import Rows

__all__ = ["REASON", "Diversify", "centres_sample"]

REASON = "near-duplicate"


class Diversify:
    """Drops a text that has too many neighbours among those kept before it.

    A dropped text's detail is the id of its most similar neighbour and the similarity.

    Args:
        source: Source of the vectors.
        rule: The rule that drops texts.
        search: Search for neighbours; its number of lists must be set if `index` is `ivf`.
        sample: Texts from which the centres of the lists are computed; needed by `ivf`.
        centres_file: File of these centres, so that a resumed run uses the same ones.
        dtype: See `diversify`.
    """

    name = "diversify"

    def __init__(
        self,
        source: TextVectors,
        rule: SelectionRule,
        search: Search,
        *,
        sample: Sequence[Text] = (),
        centres_file: str | Path | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.source, self.rule, self.search = source, rule, search
        self.sample, self.centres_file, self.dtype = sample, centres_file, dtype
        self._ids: list[str] = []
        self._filter: DiversityFilter | None = None

    def warn(self) -> None:
        """Log a warning if texts were kept because their vectors are zeros."""
        if self._filter is not None:
            self._filter.warn()

    def settings(self) -> dict[str, Any]:
        """Return the rule, the search if it is approximate, and what the vectors are."""
        return {**self.rule.to_json(), **self.search.to_json(), "vectors": self.source.identity()}

    def restore(self, kept: Sequence[Text]) -> None:
        """Put texts that an earlier run kept back into the index."""
        if kept:
            vectors = self.source.vectors(kept)
            self._ready(vectors).restore(vectors)
            self._ids.extend(text.id for text in kept)

    def __call__(self, texts: Sequence[Text]) -> Iterable[Text | Dropped]:
        """Decide about the texts of the next shard."""
        vectors = self.source.vectors(texts)
        ready = self._ready(vectors)
        with _named(texts):
            decisions = ready.feed(vectors)
        self._ids.extend(text.id for text, kept in zip(texts, decisions.kept, strict=True) if kept)
        for text, kept, neighbour, similarity in zip(texts, *decisions, strict=True):
            if kept:
                yield text
            else:
                yield Dropped(text, REASON, f"{self._ids[neighbour]} {similarity:.4f}")

    def _ready(self, vectors: Rows) -> DiversityFilter:
        if self._filter is None:
            self._filter = make_filter(
                self.rule,
                self.search,
                vectors.shape[1],
                self._centres,
                dtype=self.dtype,
                neighbours=True,
            )
        return self._filter

    def _centres(self) -> np.ndarray:
        with _named(self.sample):
            return find_centres(
                lambda: self.source.vectors(self.sample)[:], self.search.lists, self.centres_file
            )


@contextmanager
def _named(texts: Sequence[Text]) -> Iterator[None]:
    """Report an unusable vector by the id of its text; its row in a shard would tell the user nothing."""
    try:
        yield
    except (NotFiniteError, NotFiniteVectorError) as error:
        raise BuildError(
            f"The vector of the text {texts[error.row].id!r} has NaN or infinite values; encode it again."
        ) from error


def centres_sample(
    source: str | Path, search: Search, columns: Mapping[str, str] | None = None
) -> tuple[Search, list[Text]]:
    """Return the number of lists and the training sample that an approximate search of a source needs.

    Args:
        source: See `read_texts`.
        search: Search for neighbours.
        columns: See `read_texts`.

    Returns:
        The search with its number of lists, and the texts from which their centres are computed.
    """
    number = sum(1 for _ in read_texts(source, columns))
    search = search.resolved(number)
    rows = set(sample_rows(number, VECTORS_PER_LIST * search.lists).tolist())
    return search, [text for row, text in enumerate(read_texts(source, columns)) if row in rows]
