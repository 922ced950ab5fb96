"""Step `diversify`: drops texts with too many neighbours: the dynamic index filter (MAR, Table 10).

The first texts are kept and make the index. Each further text, in order, is dropped if more than `tolerated`
vectors of the index have a cosine above the threshold with it; else it is kept and joins the index.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field

from mar_st.errors import MarError
from mar_st.kernels.build import processor
from mar_st.model.names import model_source
from medteb_mteb.curation.files.records import Dropped, Text
from medteb_mteb.curation.files.step import TextsSettings, run_step
from medteb_mteb.curation.step import Counts, Model, Runtime, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import torch

    from mar_st.teachers.model import ModelTeacher
    from mar_st.teachers.store import TeacherStore

#: Cosine above which a text is too close to a neighbour, by kind of text.
THRESHOLDS = {"queries": 0.85, "documents": 0.78}
#: Vectors that are compared with the index at once, and vectors of the index that they are compared with.
BLOCK, TILE = 2048, 2048
#: Pairs whose cosines are computed exactly at once.
PAIRS = 65_536


class Decisions(NamedTuple):
    """Decisions on some vectors.

    Attributes:
        kept: Whether each vector is kept, `(m,)` bool.
        neighbour: Number of a kept vector above the threshold, the most similar one found; -1 for a kept
            vector; `(m,)` int64.
        similarity: Cosine with that neighbour, `(m,)` float32.
    """

    kept: np.ndarray
    neighbour: np.ndarray
    similarity: np.ndarray


class DynamicIndexFilter:
    """Decides about vectors in order, a block at a time, as if they came one by one.

    Matrix products find the pairs that may be above the threshold: in bfloat16, where the processor has
    instructions for it, with a margin for its rounding. Only these pairs are computed in float32. Searches of
    one vector after the other in FAISS's `IndexFlatIP` take 90 times as long, or 6 times as long as products
    in float32 (`benchmarks/diversify.py`).

    Args:
        threshold: Cosine above which two vectors are neighbours.
        tolerated: Number of neighbours that a kept vector may have.
        seed_size: Number of vectors that are kept without a comparison.
    """

    def __init__(self, threshold: float, tolerated: int = 1, seed_size: int = 5000) -> None:
        import torch  # lazy: torch

        self.threshold, self.tolerated, self.seed_size = np.float32(threshold), tolerated, seed_size
        fast = bool({"avx512_bf16", "amx_bf16"} & processor().flags)
        self.dtype = torch.bfloat16 if fast else torch.float32
        # A vector and a product are rounded by up to 2^-8 in bfloat16; sums are computed in float32.
        margin = 2.0**-8 * (2.1 + threshold) if fast else 0.0
        self._low = threshold - margin - 1e-4
        self._exact: list[np.ndarray] = []
        self._rounded: list[torch.Tensor] = []
        self.size = 0

    def feed(self, vectors: np.ndarray) -> Decisions:
        """Decide about the next vectors, `(m, dim)` floats; they are scaled to length 1.

        Raises:
            MarError: A vector has NaN or infinite values.
        """
        decisions = []
        for start in range(0, len(vectors), BLOCK):
            block = _unit(vectors[start : start + BLOCK])
            seed = max(0, min(len(block), self.seed_size - self.size))
            for part, decide in ((block[:seed], _all_kept), (block[seed:], self._decide)):
                if len(part):
                    decisions.append(decide(part))
                    self.add(part[decisions[-1].kept])
        if not decisions:
            return _all_kept(vectors)
        return Decisions(*(np.concatenate(column) for column in zip(*decisions, strict=True)))

    def add(self, vectors: np.ndarray) -> None:
        """Add vectors of length 1, `(n, dim)` float32, to the index."""
        import torch  # lazy: torch

        while len(vectors):
            place = self.size % TILE
            if not place:
                self._exact.append(np.empty((TILE, vectors.shape[1]), dtype=np.float32))
                self._rounded.append(torch.empty(TILE, vectors.shape[1], dtype=self.dtype))
            part, vectors = vectors[: TILE - place], vectors[TILE - place :]
            self._exact[-1][place : place + len(part)] = part
            self._rounded[-1][place : place + len(part)] = torch.from_numpy(part).to(self.dtype)
            self.size += len(part)

    def _decide(self, block: np.ndarray) -> Decisions:
        import torch  # lazy: torch

        rounded = torch.from_numpy(block).to(self.dtype)
        found = _all_kept(block)
        counts = np.zeros(len(block), dtype=np.int64)
        rows = np.arange(len(block))  # those that are not dropped yet
        for number, tile in enumerate(self._rounded):
            filled = min(TILE, self.size - number * TILE)
            left, right, similarity = self._near(
                rounded, block[rows], tile[:filled], self._exact[number][:filled]
            )
            left = rows[left]
            counts += np.bincount(left, minlength=len(block))
            _note(found, left, right + number * TILE, similarity)
            still = counts[rows] <= self.tolerated
            if still.mean() < 0.9:
                rows, rounded = rows[still], rounded[torch.from_numpy(still)]
        kept = counts <= self.tolerated
        own = torch.from_numpy(block).to(self.dtype)
        left, right, similarity = self._near(own, block, own, block, earlier=True)
        starts = np.searchsorted(left, np.arange(len(block) + 1))
        for row in np.unique(left).tolist():  # whether an earlier vector of the block is kept is known by now
            pairs = slice(starts[row], starts[row + 1])
            kept[row] = counts[row] + kept[right[pairs]].sum() <= self.tolerated
        numbers = self.size + np.cumsum(kept) - 1
        joined = kept[right]
        _note(found, left[joined], numbers[right[joined]], similarity[joined])
        found.neighbour[kept] = -1
        return found._replace(kept=kept)

    def _near(
        self,
        rounded: torch.Tensor,
        vectors: np.ndarray,
        other_rounded: torch.Tensor,
        others: np.ndarray,
        *,
        earlier: bool = False,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return rows of pairs above the threshold, sorted by the left one, and their cosines."""
        products = rounded @ other_rounded.T
        if earlier:
            products = products.tril(-1)
        near = (products.amax(1) > self._low).nonzero()[:, 0]  # most rows have no neighbour
        left, right = (rows.numpy() for rows in (products[near] > self._low).nonzero(as_tuple=True))
        left = near.numpy()[left]
        similarity = np.empty(len(left), dtype=np.float32)
        for start in range(0, len(left), PAIRS):
            part = slice(start, start + PAIRS)
            similarity[part] = np.einsum("pd,pd->p", vectors[left[part]], others[right[part]])
        above = similarity > self.threshold
        return left[above], right[above], similarity[above]


def _unit(vectors: np.ndarray) -> np.ndarray:
    """Return vectors of length 1, `(n, dim)` float32; zeros stay zeros, which are similar to nothing."""
    doubles = np.asarray(vectors, dtype=np.float64)
    length = np.sqrt(np.square(doubles).sum(axis=1, keepdims=True))
    if not np.isfinite(length).all():
        raise MarError("A vector has NaN or infinite values; encode the texts again with another model.")
    return np.asarray(doubles / np.where(length == 0, 1, length), dtype=np.float32)


def _all_kept(vectors: np.ndarray) -> Decisions:
    n = len(vectors)
    return Decisions(np.ones(n, dtype=bool), np.full(n, -1, dtype=np.int64), np.full(n, -1, dtype=np.float32))


def _note(found: Decisions, left: np.ndarray, right: np.ndarray, similarity: np.ndarray) -> None:
    """Note the most similar neighbour of each row."""
    order = np.lexsort((right, -similarity, left))
    rows, first = np.unique(left[order], return_index=True)
    better = similarity[order][first] > found.similarity[rows]
    rows, first = rows[better], first[better]
    found.neighbour[rows], found.similarity[rows] = right[order][first], similarity[order][first]


class _Diversify:
    """Work of the step: a dropped text's detail is the id of its neighbour and their cosine."""

    name = "diversify"

    def __init__(
        self, threshold: float, seed_size: int, encode: Callable[[Sequence[str]], np.ndarray]
    ) -> None:
        self.encode = encode
        self.built = cache(lambda: DynamicIndexFilter(threshold, seed_size=seed_size))  # it needs torch
        self._ids: list[str] = []

    def restore(self, kept: Sequence[Text]) -> None:
        """Put texts that an earlier run kept back into the index."""
        if kept:
            self.built().add(_unit(self.encode([text.full for text in kept])))
            self._ids.extend(text.id for text in kept)

    def __call__(self, texts: Sequence[Text]) -> Iterable[Text | Dropped]:
        """Decide about the texts of the next shard."""
        if not texts:
            return
        decisions = self.built().feed(self.encode([text.full for text in texts]))
        self._ids.extend(text.id for text, kept in zip(texts, decisions.kept, strict=True) if kept)
        for text, kept, neighbour, similarity in zip(texts, *decisions, strict=True):
            yield (
                text if kept else Dropped(text, "near-duplicate", f"{self._ids[neighbour]} {similarity:.4f}")
            )


class DiversifySettings(TextsSettings):
    """Options of the step `diversify`."""

    kind: Literal["queries", "documents"] = Field(
        description="Kind of the texts: decides prompt and default threshold."
    )
    model: Annotated[str, Model()] = Field(description="Embedding model: a folder or Hub name.")
    threshold: float | None = Field(
        None,
        gt=0.05,
        lt=1,
        description="Cosine of neighbours; default: 0.85 for queries, 0.78 for documents.",
    )
    seed_size: int = Field(5000, ge=0, description="Number of texts at the start that are kept unseen.")
    batch_size: Annotated[int, Runtime()] = Field(64, ge=1, description="Texts per forward pass.")


def _run(settings: DiversifySettings) -> Counts:
    """Drop texts that say the same as earlier texts, by their vectors."""
    source = model_source(settings.model)

    @cache
    def opened() -> tuple[TeacherStore, ModelTeacher]:  # once the texts are checked
        from mar_st.model.mar import open_model  # lazy: torch
        from mar_st.teachers.model import ModelTeacher  # lazy: torch
        from mar_st.teachers.store import TeacherStore, store_root  # lazy: torch

        store = TeacherStore(store_root(settings.out))
        return store, ModelTeacher.of_model(open_model(source), store, batch_size=settings.batch_size)

    def encode(texts: Sequence[str]) -> np.ndarray:
        store, teacher = opened()
        return np.asarray(
            store.vectors(teacher, texts, "query" if settings.kind == "queries" else "document")[:]
        )

    threshold = THRESHOLDS[settings.kind] if settings.threshold is None else settings.threshold
    return run_step(_Diversify(threshold, settings.seed_size, encode), settings)


DIVERSIFY = Step("diversify", DiversifySettings, _run, "texts")
