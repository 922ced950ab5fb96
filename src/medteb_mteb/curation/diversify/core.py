"""Diversification of given vectors: an array or a memory-mapped file in, a mask of the kept ones out."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from tqdm.auto import tqdm

from medteb_mteb.curation.diversify.centres import VECTORS_PER_LIST, find_centres, sample_rows
from medteb_mteb.curation.diversify.exact import TILE, Exact
from medteb_mteb.curation.diversify.filter import VECTORS_PER_BLOCK, DiversityFilter
from medteb_mteb.curation.diversify.inverted import Inverted
from medteb_mteb.curation.diversify.journal import DecisionJournal
from medteb_mteb.curation.diversify.product import Product
from medteb_mteb.curation.diversify.rule import SelectionRule
from medteb_mteb.curation.diversify.vectors import KeptVectors, NotFiniteError
from medteb_mteb.curation.files.records import BuildError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import torch


__all__ = ["Search", "diversify", "make_filter"]

#: Fewest lists of an inverted file.
MIN_LISTS = 64


@dataclass(frozen=True, slots=True)
class Search:
    """Settings of the search for neighbours.

    Attributes:
        index: `exact`, or `ivf`: only kept vectors in the lists of an inverted file whose centres are
            nearest to a vector.
        lists: Number of those lists; 0: about four times the square root of the number of texts.
        probes: Number of lists to search.
        block: Number of vectors compared with the index at once. No effect on the result of `exact`.
    """

    index: Literal["exact", "ivf"] = "exact"
    lists: int = 0
    probes: int = 8
    block: int = VECTORS_PER_BLOCK

    def __post_init__(self) -> None:
        if self.index not in ("exact", "ivf"):
            raise BuildError(f"{self.index!r} is not an index; choose from exact and ivf.")
        if self.lists < 0 or self.probes < 1 or self.block < 1:
            raise BuildError("lists must not be negative, probes and block at least 1.")

    def resolved(self, texts: int) -> Search:
        """Choose the number of lists for a number of texts; `exact` is returned unchanged."""
        if self.index == "exact":
            return self
        lists = self.lists or max(MIN_LISTS, 2 ** round(np.log2(4 * max(1, texts) ** 0.5)))
        return replace(self, lists=max(1, min(texts, lists)))

    def to_json(self) -> dict[str, Any]:
        """Return the settings that a result depends on, for the step's manifest."""
        return {"index": self.index} if self.index == "exact" else asdict(self)


def diversify(
    vectors: np.ndarray,
    *,
    threshold: float,
    k: int = 5,
    tolerated: int = 1,
    seed_size: int = 5000,
    search: Search | None = None,
    dtype: torch.dtype | None = None,
    tile: int = TILE,
    journal: str | Path | None = None,
    show_progress: bool = False,
) -> np.ndarray:
    """Return which vectors the dynamic index filter keeps; see `SelectionRule` for its definition.

    With an exact index the decisions equal those of a loop that searches FAISS's `IndexFlatIP` for one vector
    after the other.

    Args:
        vectors: `(n, dim)` floats, in memory or mapped; they are normalised to length 1 and never copied as a
            whole.
        threshold: Similarity above which a neighbour counts.
        k: Number of neighbours considered.
        tolerated: Number of neighbours above the threshold that a kept vector may have.
        seed_size: Number of vectors at the start that are kept without a comparison.
        search: Search for neighbours; default exact.
        dtype: Data type of the products that exclude far neighbours (`bfloat16`, `float32`); default the
            faster one. No effect on the result.
        tile: Number of kept vectors compared at once. No effect on the result.
        journal: File to which decisions are written as they are made; an interrupted run resumes from it.
        show_progress: Show a progress bar.

    Returns:
        `(n,)` bool, true for kept vectors.

    Raises:
        BuildError: The vectors or settings are invalid, the journal is that of other vectors or settings, or
            FAISS is not installed.
    """
    rule, search = SelectionRule(threshold, k, tolerated, seed_size), search or Search()
    if vectors.ndim != 2 or vectors.dtype.kind != "f" or not vectors.shape[1]:
        raise BuildError(
            f"Vectors are floats of shape (n, dim); these are {vectors.dtype} of shape {vectors.shape}."
        )
    n = len(vectors)
    search = search.resolved(n)
    rows = sample_rows(n, VECTORS_PER_LIST * search.lists)
    centres_file = f"{journal}.centres.npy" if journal else None

    def centres() -> np.ndarray:
        try:
            return find_centres(lambda: vectors[rows], search.lists, centres_file)
        except NotFiniteError as error:  # of a row of the sample
            raise NotFiniteError(int(rows[error.row])) from None

    built = make_filter(
        rule,
        search,
        vectors.shape[1],
        centres,
        dtype=dtype,
        tile=tile,
    )
    record = DecisionJournal(journal, vectors, {**rule.to_json(), **search.to_json()}) if journal else None
    kept = np.ones(n, dtype=bool)
    with tqdm(total=n, desc="diversify", unit="vectors", disable=not show_progress) as bar:
        done = 0
        if record is not None:
            decisions = record.read()
            # A block is the unit of an approximate search; a part of one would be searched otherwise.
            done = len(decisions) if len(decisions) == n else _whole_blocks(len(decisions), rule, search)
            kept[:done] = decisions[:done]
            record.cut(done)
            if done < n:
                built.restore(vectors, np.flatnonzero(kept[:done]))
            bar.update(done)
        while done < n:
            stop = min(n, rule.seed_size if done < rule.seed_size else done + search.block)
            kept[done:stop] = built.feed(vectors[done:stop], done).kept
            if record is not None:
                record.write(kept[done:stop])
            bar.update(stop - done)
            done = stop
    built.warn()
    return kept


def make_filter(
    rule: SelectionRule,
    search: Search,
    dim: int,
    centres: Callable[[], np.ndarray],
    *,
    dtype: torch.dtype | None = None,
    tile: int = TILE,
    neighbours: bool = False,
) -> DiversityFilter:
    """Return a filter with an empty index.

    Args:
        rule: The rule.
        search: Search for neighbours.
        dim: Width of the vectors.
        centres: Returns the centres of an inverted file's lists, `(lists, dim)` of length 1; used by `ivf`.
        dtype: See `diversify`.
        tile: See `diversify`.
        neighbours: Also return the neighbour of each dropped vector.
    """
    kept, product = KeptVectors(dim), Product(float(rule.limit), dim, dtype)
    index: Exact | Inverted
    if search.index == "exact":
        index = Exact(rule, kept, product, tile=tile)
    else:
        index = Inverted(rule, kept, centres(), search.probes, dtype)
    return DiversityFilter(rule, kept, index, product, block=search.block, neighbours=neighbours)


def _whole_blocks(decided: int, rule: SelectionRule, search: Search) -> int:
    if decided < rule.seed_size:
        return 0
    return decided - (decided - rule.seed_size) % search.block
