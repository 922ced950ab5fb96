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
    key, title = "leakage", "Training sets do not hold the test"
    if material.training is None:
        return Finding(key, title, "not known", "no training sets were given (--against)")
    relevant = {name for row in material.qrels.values() for name in row}
    documents = [
        f"{row['title']}\n{row['text']}" if row["title"] else row["text"]
        for row in material.data.corpus
        if row["id"] in relevant
    ]
    found = leakage([row["text"] for row in material.data.queries], documents, material.training)
    numbers: dict[str, Number] = {
        "training texts": len(material.training),
        "queries": found.queries,
        "queries equal to a training text": found.equal,
        "queries near a training text": found.near,
        "relevant documents": found.documents,
        "relevant documents in training": found.equal_documents,
    }
    if found.near:
        near = f"{found.near} of {found.queries} queries"
        return Finding(
            key, title, "fail", f"{near} are near-duplicates of training texts; take them out", numbers
        )
    if found.equal_documents:
        number = f"{found.equal_documents} of {found.documents}"
        reason = f"no query, but {number} relevant documents are training texts"
        return Finding(key, title, "warning", reason, numbers)
    reason = f"none of {found.queries} queries and {found.documents} relevant documents is among them"
    return Finding(key, title, "ok", reason, numbers)
