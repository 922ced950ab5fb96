"""Rows of English MedTEB: labelled texts, queries with their documents, pairs with hard negatives."""

from __future__ import annotations

import hashlib
import heapq
import random
from typing import TYPE_CHECKING, Generic, TypeVar

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.relatives.negatives import hard_negatives

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = [
    "MAX_LABELLED_ROWS",
    "MAX_ROWS",
    "SEED",
    "Draw",
    "distinct",
    "labelled",
    "pair_rows",
    "retrieval_rows",
]

Item = TypeVar("Item")

#: Maximum rows of classification and clustering, and of pairs and retrieval, as published.
MAX_LABELLED_ROWS, MAX_ROWS = 8_192, 16_384
SEED = 42


class Draw(Generic[Item]):
    """Draws a number of items from a stream of unknown length.

    Items are ranked by a digest of seed and text, so a smaller draw is a subset of a larger one, and equal
    texts count once.

    Args:
        most: Maximum items kept in memory.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._seen: set[int] = set()
        self._heap: list[tuple[int, int, Item]] = []  # the largest digest first, so that it is dropped first

    def __len__(self) -> int:
        """Return the number of items drawn so far."""
        return len(self._heap)

    def add(self, text: str, item: Item) -> None:
        """Add an item to the draw.

        Args:
            text: Text that identifies the item.
            item: The item to keep.
        """
        digest = hashlib.sha256(f"{SEED}\0{text}".encode("utf-8", "surrogatepass")).digest()
        lot = int.from_bytes(digest[:16], "big")
        if lot in self._seen:
            return
        self._seen.add(lot)
        heapq.heappush(self._heap, (-lot, len(self._seen), item))
        if len(self._heap) > self.most:
            heapq.heappop(self._heap)

    def items(self, number: int | None = None) -> list[Item]:
        """Return the items in the order of the stream.

        Args:
            number: Maximum items; None: all that were drawn.
        """
        drawn = heapq.nlargest(self.most if number is None else number, self._heap, key=lambda one: one[0])
        return [item for _, _, item in sorted(drawn, key=lambda one: one[1])]


def labelled(task: str, texts: Mapping[str, Iterable[str]], hint: str) -> list[dict[str, str]]:
    """Return rows with the first label of every text; if there are too many rows, draw a sample of them.

    Args:
        task: Name of the task.
        texts: Texts by label, in order.
        hint: Possible causes of a label without texts, for the error.

    Raises:
        BuildError: A label is not the first label of any text.
    """
    label_of: dict[str, str] = {}
    for label, label_texts in texts.items():
        for text in label_texts:
            label_of.setdefault(text, label)
    if empty := set(texts) - set(label_of.values()):
        raise BuildError(f"{task}: nothing was found for {', '.join(sorted(empty))}; {hint}.")
    rows = [{"text": text, "label": label} for text, label in label_of.items()]
    if len(rows) <= MAX_LABELLED_ROWS:
        return rows
    drawn = sorted(random.Random(SEED).sample(range(len(rows)), MAX_LABELLED_ROWS))
    return [rows[i] for i in drawn]


def distinct(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the pairs in their order, without duplicates and without pairs that have an empty text."""
    return list(dict.fromkeys(pair for pair in pairs if all(pair)))


def retrieval_rows(pairs: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    """Return the first `MAX_ROWS` pairs as queries with their documents."""
    return [{"query": query, "corpus": document} for query, document in pairs[:MAX_ROWS]]


def pair_rows(
    pairs: Sequence[tuple[str, str]], nearest: int, negatives: str, groups: Sequence[str] | None = None
) -> list[dict[str, str | int]]:
    """Return as many positives as negatives, at most `MAX_ROWS` together.

    Args:
        pairs: First texts with their positives.
        nearest: Number of second texts nearest to the positive from which a negative is drawn.
        negatives: Method that finds near texts, see `by` of `hard_negatives`.
        groups: Group of each pair; second texts of the same group are never negatives. None: no groups.
    """
    pairs = pairs[: MAX_ROWS // 2]
    if not pairs:
        return []
    near = hard_negatives([second for _, second in pairs], nearest, negatives, groups)
    rows: list[dict[str, str | int]] = []
    for (first, second), other in zip(pairs, near, strict=True):
        if other is not None:
            rows.append({"sentence1": first, "sentence2": second, "label": 1})
            rows.append({"sentence1": first, "sentence2": pairs[other][1], "label": 0})
    return rows
