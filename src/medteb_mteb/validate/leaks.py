"""Check if training sets contain this test."""

from __future__ import annotations

from typing import TYPE_CHECKING

from medteb_mteb.curation.texts.redundancy import leakage
from medteb_mteb.validate.findings import Finding

if TYPE_CHECKING:
    from medteb_mteb.validate.findings import Number
    from medteb_mteb.validate.material import Material

__all__ = ["leaks"]


def leaks(material: Material) -> Finding:
    """Look for queries and positive documents of the test among the texts of training sets."""
    key, title = "leakage", "Training sets do not contain test queries"
    if material.training is None:
        return Finding(key, title, "not known", "no training sets were given (--against)")
    relevant = {name for row in material.qrels.values() for name in row}
    documents = [
        f"{row['title']}\n{row['text']}" if row["title"] else row["text"]
        for row in material.data.corpus
        if row["id"] in relevant
    ]
    overlap = leakage([row["text"] for row in material.data.queries], documents, material.training)
    numbers: dict[str, Number] = {
        "training texts": len(material.training),
        "queries": overlap.queries,
        "queries equal to a training text": overlap.equal,
        "queries near a training text": overlap.near,
        "relevant documents": overlap.documents,
        "relevant documents in training": overlap.equal_documents,
    }
    if overlap.near:
        near = f"{overlap.near} of {overlap.queries} queries"
        return Finding(
            key, title, "fail", f"{near} are near-duplicates of training texts; take them out", numbers
        )
    if overlap.equal_documents:
        number = f"{overlap.equal_documents} of {overlap.documents}"
        reason = f"no query, but {number} relevant documents are training texts"
        return Finding(key, title, "warning", reason, numbers)
    reason = f"none of {overlap.queries} queries and {overlap.documents} relevant documents is among them"
    return Finding(key, title, "ok", reason, numbers)
