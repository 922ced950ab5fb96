"""Check that the files are intact and their rows usable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from medteb_mteb.editions import EditionError, verify
from medteb_mteb.validate.findings import Finding

if TYPE_CHECKING:
    from medteb_mteb.validate.material import Material

__all__ = ["files", "identifiers", "positives", "rows"]

#: Kinds of problems with a separate point; all others are unusable rows.
_IDS = ("query", "document", "judged", "candidates")
_POSITIVES = ("positives",)


def files(material: Material) -> Finding:
    """Check every data file against the manifest."""
    edition = material.layout.edition
    key, title = "files", "Files agree with the manifest"
    if edition is None:
        reason = "there is no manifest, so changed files cannot be detected; write one (medteb edition write)"
        return Finding(key, title, "not known", reason)
    numbers = {"files": len(edition.files), "bytes": sum(entry.bytes for entry in edition.files.values())}
    try:
        verify(edition)
    except EditionError as error:
        reason = str(error).replace(f"{material.layout.path}/", "")
        return Finding(key, title, "fail", reason, {**numbers})
    return Finding(key, title, "ok", f"{len(edition.files)} files have their digests", {**numbers})


def rows(material: Material) -> Finding:
    """Look for unusable rows: broken JSON or UTF-8, wrong columns, repeated ids, empty texts."""
    key, title = "rows", "Rows are valid"
    bad = material.problems.total - material.problems_of(*_IDS, *_POSITIVES)
    numbers = {"unusable rows": bad}
    if not bad:
        return Finding(key, title, "ok", "every row of every table can be used", {**numbers})
    of_rows = [text for kind, text in material.problems.examples if kind not in (*_IDS, *_POSITIVES)]
    shown = "; ".join(of_rows[:3])
    return Finding(key, title, "fail", f"{bad} rows cannot be used, for example {shown}", {**numbers})


def identifiers(material: Material) -> Finding:
    """Look for unknown ids in the qrels, in lists of candidates and in files of judged pairs."""
    key, title = "ids", "All ids exist"
    judged = material.data.judged
    dangling, unjudged = (
        material.problems_of("query", "document", "candidates"),
        material.problems_of("judged"),
    )
    numbers = {
        "dangling ids": dangling,
        "queries in no split": unjudged,
        "judged pairs outside the corpus": judged.dangling,
        "contradicting judgements": judged.contradictions,
    }
    if dangling:
        reason = f"{dangling} rows name a query or document that is not there; no model can find it"
        return Finding(key, title, "fail", reason, {**numbers})
    if judged.contradictions:
        reason = f"{judged.contradictions} pairs are positive in one file and negative in another"
        return Finding(key, title, "fail", reason, {**numbers})
    if unjudged:
        reason = f"{unjudged} queries have no judgement in any split; mteb leaves them out"
        return Finding(key, title, "warning", reason, {**numbers})
    return Finding(key, title, "ok", "all queries and documents of the qrels are there", {**numbers})


def positives(material: Material) -> Finding:
    """Look for queries without a positive document."""
    key, title = "positives", "Every query has an answer"
    queries, answered = len(material.data.queries), len(material.qrels)
    numbers = {"queries": queries, "queries without a positive": queries - answered}
    if answered == queries:
        return Finding(key, title, "ok", f"all {queries} queries have a positive", {**numbers})
    reason = (
        f"{queries - answered} of {queries} queries have no positive; mteb leaves them out, and medteb run "
        "refuses the folder"
    )
    return Finding(key, title, "fail", reason, {**numbers})
