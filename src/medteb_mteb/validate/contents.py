"""Checks of an edition's files: intact, complete, large enough, no duplicates, no leaks, a licence."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import combinations
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from mar_st.errors import MarError
from mar_st.files import card_header
from mar_st.text.texts import join_document, normalise
from medteb_mteb.curation.files.records import Dropped, Text
from medteb_mteb.curation.texts.near_duplicates import DOCUMENT_SIMILARITY, NearDuplicates
from medteb_mteb.curation.training.rows import HeldOut
from medteb_mteb.editions import mappings, verify
from medteb_mteb.report.intervals import smallest_difference
from medteb_mteb.report.page import Finding, Table, graded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from medteb_mteb.validate.material import Material

#: Smallest detectable difference in nDCG@10 up to which a test is fine, and up to which it is of some use.
FINE_DIFFERENCE, USABLE_DIFFERENCE = 0.05, 0.10
#: Assumed standard deviation of the differences per query.
ASSUMED_DEVIATION = 0.3
#: Maximum share of queries that repeat another one, and of unlabelled copies among the positives.
MAX_REPEATED_SHARE, MAX_COPIES_SHARE = 0.05, 0.01
_NO_LICENCE = ("", "unknown", "other", "none", "not specified")
#: Parts of identifiers that forbid commercial use or changed copies.
_RESTRICTED_PARTS = ("nc", "nd")


def files(material: Material) -> Finding:
    """Check every data file against the manifest."""
    edition, title = material.layout.edition, "Files agree with the manifest"
    if edition is None:
        reason = "there is no manifest, so changed files cannot be detected; write one (medteb edition write)"
        return Finding(title, "not known", reason)
    try:
        verify(edition)
    except MarError as error:
        return Finding(title, "fail", str(error).replace(f"{material.layout.path}/", ""))
    return Finding(title, "ok", f"{len(edition.files)} files have their digests")


def rows(material: Material) -> Finding:
    """Look for rows that cannot be used, ids that are not there, and queries without an answer."""
    title, judged, problems = "Rows are valid", material.data.judged, material.problems
    unanswered = len(material.data.queries) - len(material.qrels)
    numbers = {
        **{f"problems of the kind {kind}": number for kind, number in problems.counts.items()},
        "queries without a positive": unanswered,
        "judged pairs outside the corpus": judged.dangling,
        "contradicting judgements": judged.contradictions,
    }
    if bad := problems.counts.total() - problems.counts["judged"]:
        examples = "; ".join(problems.examples[:3])
        return Finding(title, "fail", f"{bad} rows cannot be used, for example {examples}", numbers)
    if judged.contradictions:
        reason = f"{judged.contradictions} pairs are positive in one file and negative in another"
        return Finding(title, "fail", reason, numbers)
    if unanswered:
        reason = f"{unanswered} queries have no positive, and medteb run refuses the folder"
        return Finding(title, "fail", reason, numbers)
    if problems.counts:
        reason = f"{problems.counts['judged']} queries have no judgement in any split; mteb leaves them out"
        return Finding(title, "warning", reason, numbers)
    return Finding(
        title, "ok", "every row of every table can be used, and every query has a positive", numbers
    )


def size(material: Material) -> Finding:
    """Report sizes, and the smallest difference that a paired test finds four times in five.

    The standard deviation of the differences per query is the assumed one, or the largest among the runs if
    that is larger: runs that are much alike say little about others.
    """
    title, queries = "Large enough to tell systems apart", len(material.qrels)
    if not queries:
        return Finding(title, "fail", "no query has a positive")
    each = [len(row) for row in material.qrels.values()]
    measured = [
        stdev(one[query].ndcg - other[query].ndcg for query in one)
        for one, other in combinations(material.scores.values(), 2)
        if len(one) > 1
    ]
    deviation = max(ASSUMED_DEVIATION, *measured, 0.0)
    smallest = smallest_difference(queries, deviation)
    numbers = {
        "queries": queries,
        "documents": len(material.data.corpus),
        "positives": sum(each),
        "positives per query, mean": round(fmean(each), 2),
        "judged negatives": material.data.judged.pairs if material.data.judged.known else None,
        "disputed pairs": sum(map(len, material.data.judged.disputed.values())),
        "smallest detectable difference in nDCG@10": round(smallest, 4),
    }
    reason = (
        f"{queries} queries find a difference of {smallest:.3f} in nDCG@10 four times in five (test at "
        f"5 %, standard deviation of differences {deviation:.2f})"
    )
    verdict = graded(smallest, FINE_DIFFERENCE, USABLE_DIFFERENCE)
    if verdict != "ok":
        needed = int((smallest_difference(1, deviation) / FINE_DIFFERENCE) ** 2) + 1
        reason += f"; {needed:,} queries would find {FINE_DIFFERENCE}"
    return Finding(title, verdict, reason, numbers)


def duplicate_queries(material: Material) -> Finding:
    """Look for equal queries, and for clusters of near-duplicates, which count as one."""
    title, texts = "Queries are different questions", [row["text"] for row in material.data.queries]
    equal = len(texts) - len({normalise(text) or text for text in texts})
    groups = Counter(material.clusters.values())
    repeated = len(texts) - len(groups)
    summary = f"{equal} of {len(texts)} queries equal another one, {repeated} are near-duplicates of another"
    numbers = {"clusters of near-duplicates": len(groups), "largest cluster": max(groups.values())}
    if repeated > MAX_REPEATED_SHARE * len(texts):
        reason = f"{summary}: the test has {len(groups)} different questions. Keep one of each cluster"
        return Finding(title, "fail", reason, numbers)
    return Finding(title, "warning" if equal else "ok", summary, numbers)


def duplicate_documents(material: Material) -> Finding:
    """Look for equal or nearly equal documents, and for copies of a positive that are not labelled."""
    title = "Documents are different, and copies have one label"
    texts = {row["id"]: join_document(row) for row in material.data.corpus}
    groups: dict[str, list[str]] = defaultdict(list)
    for name, text in texts.items():
        groups[normalise(text) or text].append(name)
    copies = {name: group for group in groups.values() for name in group}
    outcomes = NearDuplicates(DOCUMENT_SIMILARITY)([Text(name, text) for name, text in texts.items()])
    near = sum(isinstance(one, Dropped) for one in outcomes)
    unlabelled = 0
    for query, row in material.qrels.items():
        judged = material.data.judged
        known = row.keys() | judged.negatives.get(query, set()) | judged.disputed.get(query, set())
        unlabelled += len({copy for positive in row for copy in copies[positive]} - known)
    equal, total = len(texts) - len(groups), sum(map(len, material.qrels.values()))
    summary = f"{equal} of {len(texts)} documents equal another one, {near} are near-duplicates"
    numbers = {"unlabelled copies of positives": unlabelled}
    if unlabelled:
        reason = f"{summary}; {unlabelled} copies of positives are not labelled and count as wrong"
        return Finding(title, "fail" if unlabelled > MAX_COPIES_SHARE * total else "warning", reason, numbers)
    if equal:
        return Finding(title, "warning", f"{summary}. Keep one of each (medteb dedup)", numbers)
    return Finding(title, "ok", summary, numbers)


def leaks(material: Material) -> Finding:
    """Look for queries and positive documents of the test among the texts of training sets."""
    title = "Training sets do not contain test queries"
    if material.training is None:
        return Finding(title, "not known", "no training sets were given (--against)")
    relevant = {name for row in material.qrels.values() for name in row}
    documents = [join_document(row) for row in material.data.corpus if row["id"] in relevant]
    queries = [row["text"] for row in material.data.queries]
    texts = tuple(dict.fromkeys(material.training))
    known = {normalise(text) for text in texts}
    near = HeldOut(texts, names=texts).leaks(queries)
    equal_documents = sum(normalise(text) in known for text in documents)
    numbers = {
        "training texts": len(material.training),
        "queries equal to a training text": sum(normalise(text) in known for text in queries),
        "queries near a training text": len(near),
        "relevant documents in training": equal_documents,
    }
    if near:
        examples = [(queries[row], text) for row, text in list(near.items())[:10]]
        table = Table(("query", "training text and similarity"), tuple(examples))
        reason = f"{len(near)} of {len(queries)} queries are near-duplicates of training texts; take them out"
        return Finding(title, "fail", reason, numbers, table)
    if equal_documents:
        reason = f"no query, but {equal_documents} of {len(documents)} relevant documents are training texts"
        return Finding(title, "warning", reason, numbers)
    reason = f"none of {len(queries)} queries and {len(documents)} relevant documents is among them"
    return Finding(title, "ok", reason, numbers)


def card(material: Material) -> Finding:
    """Check the licence, as the card, the manifest and the sources state it."""
    title, edition = "The licence is stated", material.layout.edition
    stated = str(card_header(material.layout.path).get("license") or "")
    licence = (edition.licence if edition else stated) or ""
    if edition and stated and stated.lower() != edition.licence.lower():
        return Finding(title, "fail", f"the card says {stated}, the manifest {edition.licence}")
    if licence.lower() in _NO_LICENCE:
        reason = "no licence is stated, so the data may not be used or shared; add it to the card's header"
        return Finding(title, "fail", reason)
    for source in mappings(edition.extra, "sources") if edition else []:
        if wrong := _restricts(source, licence):
            return Finding(title, "warning", f"licence {licence}; {wrong}")
    return Finding(title, "ok", f"licence {licence}")


def _restricts(source: Mapping[str, object], licence: str) -> str:
    """Return the problem with the licence of the source of texts; empty without one."""
    name, its = source.get("name"), str(source.get("licence", ""))
    if its.lower() in _NO_LICENCE:
        return f"the licence of the source {name} is not known; ask its authors before sharing texts"
    for part in _RESTRICTED_PARTS:
        if part in its.lower().split("-") and part not in licence.lower().split("-"):
            return f"the source {name} has {its}; give the edition a licence that holds for all its texts"
    return ""
