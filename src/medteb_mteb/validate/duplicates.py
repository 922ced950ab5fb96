"""Check for queries or documents that count several times."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from mar_st.text.normalisation import normalise
from medteb_mteb.curation.files.records import BuildError, Dropped, Text
from medteb_mteb.curation.labels.intervals import smallest_difference
from medteb_mteb.curation.texts.near_duplicates import DOCUMENT_SIMILARITY as DOCUMENTS_THRESHOLD
from medteb_mteb.curation.texts.near_duplicates import NearDuplicates
from medteb_mteb.validate.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable

    from medteb_mteb.validate.findings import Number
    from medteb_mteb.validate.material import Material

__all__ = ["MAX_COPIES_SHARE", "MAX_REPEATED_SHARE", "duplicate_documents", "duplicate_queries"]

#: Maximum share of queries that repeat another one; with more, the test is smaller than it looks.
MAX_REPEATED_SHARE = 0.05
#: Maximum number of unlabelled copies of positives, as a share of the positives.
MAX_COPIES_SHARE = 0.01


def duplicate_queries(material: Material) -> Finding:
    """Look for equal queries, and for clusters of near-duplicates, which count as one."""
    texts = [row["text"] for row in material.data.queries]
    equal = len(texts) - len({normalise(text) or text for text in texts})
    groups = Counter(material.clusters.values())
    repeated = len(texts) - len(groups)
    numbers: dict[str, Number] = {
        "equal to another": equal,
        "clusters of near-duplicates": len(groups),
        "largest cluster": max(groups.values()),
        "smallest detectable difference by clusters": round(smallest_difference(len(groups)), 4),
    }
    key, title = "duplicate queries", "Queries are different questions"
    summary = (
        f"{equal} queries equal another one, and {repeated} of {len(texts)} are near-duplicates of another"
    )
    if repeated > MAX_REPEATED_SHARE * len(texts):
        reason = f"{summary}: the test has {len(groups)} different questions. Keep one of each cluster"
        return Finding(key, title, "fail", reason, numbers)
    if equal:
        return Finding(key, title, "warning", f"{summary}. Keep one of each", numbers)
    return Finding(key, title, "ok", summary, numbers)


def duplicate_documents(material: Material) -> Finding:
    """Look for equal or nearly equal documents, and for copies of a positive that are not labelled."""
    texts = {row["id"]: _full(row) for row in material.data.corpus}
    groups: dict[str, list[str]] = defaultdict(list)
    for name, text in texts.items():
        groups[normalise(text) or text].append(name)
    copies = {name: group for group in groups.values() if len(group) > 1 for name in group}
    near = _near(texts)
    unlabelled = _unlabelled(material, copies)
    total = sum(map(len, material.qrels.values()))
    numbers: dict[str, Number] = {
        "equal to another": len(texts) - len(groups),
        "near-duplicates of another": None if near is None else len(near),
        "unlabelled copies of positives": unlabelled,
        "unlabelled near-copies of positives": None if near is None else _unlabelled(material, near),
    }
    key, title = "duplicate documents", "Documents are different, and copies have one label"
    about = "not counted (pip install 'medteb[build]')" if near is None else f"{len(near)} near-duplicates"
    summary = f"{len(texts) - len(groups)} of {len(texts)} documents equal another one, {about}"
    if unlabelled:
        reason = f"{summary}; {unlabelled} copies of positives are not labelled and count as wrong"
        return Finding(
            key, title, "fail" if unlabelled > MAX_COPIES_SHARE * total else "warning", reason, numbers
        )
    if len(texts) > len(groups):
        return Finding(key, title, "warning", f"{summary}. Keep one of each (medteb dedup)", numbers)
    return Finding(key, title, "ok", summary, numbers)


def _full(row: dict[str, str]) -> str:
    return f"{row['title']}\n{row['text']}" if row["title"] else row["text"]


def _near(texts: dict[str, str]) -> dict[str, list[str]] | None:
    """Return a dropped near-duplicate -> the document that it is one of; None without the library."""
    try:
        step = NearDuplicates(DOCUMENTS_THRESHOLD)
    except BuildError:
        return None
    outcomes = step([Text(name, text) for name, text in texts.items()])
    dropped = [one for one in outcomes if isinstance(one, Dropped)]
    return {one.text.id: [one.text.id, one.detail.rpartition(" ")[0]] for one in dropped}


def _unlabelled(material: Material, groups: dict[str, list[str]]) -> int:
    """Return the pairs of a query and an unjudged document with a copy that is a positive of the query."""
    partners: dict[str, set[str]] = defaultdict(set)
    for group in _different(groups.values()):
        for name in group:
            partners[name] |= set(group) - {name}
    pairs = set()
    for query, row in material.qrels.items():
        negatives = material.data.judged.negatives.get(query, frozenset())
        disputed = material.data.judged.disputed.get(query, frozenset())
        for positive in row:
            others = partners.get(positive, set()) - row.keys() - negatives - disputed
            pairs |= {(query, other) for other in others}
    return len(pairs)


def _different(groups: Iterable[list[str]]) -> list[tuple[str, ...]]:
    return list(dict.fromkeys(tuple(group) for group in groups))
