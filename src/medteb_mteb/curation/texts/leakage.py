"""Overlap of a test with training data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from mar_st.text.normalisation import normalise
from medteb_mteb.curation.texts.split import QUERY_SIMILARITY, near_duplicates

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Leakage", "leakage"]


@dataclass(frozen=True)
class Leakage:
    """Overlap of a test with a training set.

    Attributes:
        queries: Number of test queries.
        equal: Number of test queries whose normalised text is among the training texts.
        near: Number of test queries with a near-duplicate among the training texts, including equal ones.
        documents: Number of test documents that are relevant to a query.
        equal_documents: Number of these documents whose normalised text is among the training texts.
        examples: Pairs of a test query and its nearest training text, at most ten.
    """

    queries: int
    equal: int
    near: int
    documents: int
    equal_documents: int
    examples: tuple[tuple[str, str], ...]

    def to_json(self) -> dict[str, Any]:
        """Return JSON-ready content."""
        return asdict(self)


def leakage(
    queries: Sequence[str],
    documents: Sequence[str],
    training: Sequence[str],
    *,
    threshold: float = QUERY_SIMILARITY,
) -> Leakage:
    """Look for a test in a training set.

    Args:
        queries: Queries of the test.
        documents: Relevant documents of the test.
        training: All texts of the training set.
        threshold: Minimum similarity of near-duplicates, see `medteb_mteb.curation.texts.split`.
    """
    texts = list(dict.fromkeys(training))
    known = {normalise(text) for text in texts}
    nearest: dict[int, tuple[float, int]] = {}
    for row, other, similarity in near_duplicates(queries, texts, threshold=threshold):
        if row not in nearest or similarity > nearest[row][0]:
            nearest[row] = similarity, other
    pairs = sorted((-similarity, row, other) for row, (similarity, other) in nearest.items())
    return Leakage(
        len(queries),
        sum(normalise(text) in known for text in queries),
        len(nearest),
        len(documents),
        sum(normalise(text) in known for text in documents),
        tuple((queries[row], texts[other]) for _, row, other in pairs[:10]),
    )
