"""Assembly of labels into editions that mteb scores models on, and triples that `mar train` reads."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

from medteb_mteb.curation.edition.card import named, write_card
from medteb_mteb.curation.edition.describe import describe
from medteb_mteb.curation.files.layout import write_disputed, write_qrels, write_rows, write_texts
from medteb_mteb.curation.files.place import placing, refuse_taken
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.labels.intervals import smallest_difference
from medteb_mteb.curation.texts.split import QUERY_SIMILARITY, near_duplicates, split_queries
from medteb_mteb.curation.training.leaks import HeldOut
from medteb_mteb.editions import load_edition, write_manifest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from medteb_mteb.curation.files.layout import Qrels
    from medteb_mteb.curation.files.records import Text
    from medteb_mteb.curation.labels.grades import Label
    from medteb_mteb.editions import Edition

__all__ = ["Assembly", "Built", "assemble"]

STEP_NAME = "assemble"
RETRIEVAL, RERANKING = "MedTEBRetrieval", "MedTEBReranking"
#: All that the step writes into a folder of data.
OUTPUT_FILES = (RETRIEVAL, RERANKING, "train/triples.jsonl", "train/pairs.jsonl")


#: Share of the requested test queries below which a test is refused.
MIN_TEST_SHARE = 0.9
#: Number of test queries below which a share is refused: fewer distinguish only very different systems.
MIN_TEST_QUERIES = 30


@dataclass(frozen=True)
class Assembly:
    """Settings of the assembly of editions from labels.

    Attributes:
        name: Name of the edition.
        licence: Licence of the data, as in its manifest.
        version: Version of the edition.
        test: Number of test queries, or their share if below 1; the others become training triples.
        corpus: `undisputed`: all documents except those that the judges disagree on for a test query (a
            document that is a positive of another test query stays). `labelled`: those with a label for a
            test query. `all`: all given documents.
        list_size: Maximum number of candidates of a reranking list.
        list_positives: Maximum number of positives of a reranking list.
        leaks: Treatment of a test query that is a near-duplicate of a query of a training set:
            `drop` it, `keep` it, or `fail`.
        threshold: Minimum Jaccard similarity of near-duplicates.
        small: Whether to accept a test with far fewer queries than `test` asks for, or, if `test` is a share,
            with fewer than `MIN_TEST_QUERIES`.
        seed: Seed of the split and of the lists.
    """

    name: str
    licence: str
    version: str = "1.0.0"
    test: float = 0.2
    corpus: Literal["undisputed", "labelled", "all"] = "undisputed"
    list_size: int = 100
    list_positives: int = 10
    leaks: Literal["drop", "keep", "fail"] = "drop"
    threshold: float = QUERY_SIMILARITY
    seed: int = 42
    small: bool = False

    def __post_init__(self) -> None:
        if self.corpus not in ("undisputed", "labelled", "all"):
            raise BuildError(f"corpus must be undisputed, labelled or all; got {self.corpus!r}.")
        if self.leaks not in ("drop", "keep", "fail"):
            raise BuildError(f"leaks must be drop, keep or fail; got {self.leaks!r}.")
        if not 0 < self.list_positives < self.list_size:
            raise BuildError(
                f"A list of {self.list_size} with up to {self.list_positives} positives has no place for "
                "negatives; lower list_positives."
            )


@dataclass(frozen=True)
class Built:
    """Result of assembling editions and training data.

    Attributes:
        editions: The editions, by task.
        triples: Number of training triples.
        statistics: Counts of dropped items by reason, and of the split.
        notes: Remarks for the reader, such as the smallest difference that the test can detect.
    """

    editions: dict[str, Edition]
    triples: int
    statistics: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def assemble(
    labels: Iterable[Label],
    queries: Mapping[str, Text],
    documents: Mapping[str, Text],
    out: str | Path,
    how: Assembly,
    *,
    training_queries: Sequence[str] = (),
    held_out: HeldOut | None = None,
    provenance: Mapping[str, Any] | None = None,
) -> Built:
    """Write `out/MedTEBRetrieval`, `out/MedTEBReranking` and `out/train/triples.jsonl`.

    Training queries without a judged negative go to `out/train/pairs.jsonl`.

    With `MEDTEB_DATA=out` mteb scores models on the editions. The same input gives the same bytes. How they
    were made goes to `provenance.json` and `croissant.json` beside the data.

    Args:
        labels: The label of every judged pair.
        queries: Queries by id.
        documents: Documents by id.
        out: Folder of data, to which `sts` may have written, too.
        how: Settings.
        training_queries: Queries that models were trained on, which must not be in the test.
        held_out: Queries of other tests; near-duplicates of them are not trained on.
        provenance: What earlier steps recorded, see `medteb_mteb.curation.edition.describe.gathered`.

    Raises:
        BuildError: The folder is in use, labels name missing texts, no query has a positive, or
            training queries leak into the test and `leaks` is `fail`.
    """
    folder = Path(out)
    refuse_taken(folder, STEP_NAME, OUTPUT_FILES)
    qrels, disputed = _by_query(labels, queries, documents)
    counts: Counter[str] = Counter(disputed=sum(map(len, disputed.values())))
    answered = {query: row for query, row in qrels.items() if any(row.values())}
    counts["queries without a positive"] = len({*qrels, *disputed}) - len(answered)
    if not answered:
        raise BuildError("No query has a positive, so there is nothing to make a test of.")
    split = split_queries(
        {query: queries[query].full for query in sorted(answered)},
        how.test,
        seed=how.seed,
        threshold=how.threshold,
    )
    test = _without_leaks(split.test, queries, training_queries, how, counts)
    _check_size(len(test), len(answered), len({*qrels, *disputed}), how, counts)
    chosen = {query: answered[query] for query in test}
    leaks = (held_out or HeldOut()).leaks([queries[query].full for query in split.train])
    counts["training queries near another test"] = len(leaks)
    train = [query for row, query in enumerate(split.train) if row not in leaks]
    with placing(folder, STEP_NAME, OUTPUT_FILES) as part:
        triples = _write_triples(
            part, {query: answered[query] for query in train}, queries, documents, counts
        )
        statistics = {
            "clusters of near-duplicate queries": split.clusters,
            "largest cluster": split.largest,
            **{name: number for name, number in sorted(counts.items()) if number},
        }
        corpus = _corpus(chosen, disputed, documents, how)
        record = dict(provenance or {})
        sources = record.get("sources", [])
        editions = [_retrieval(part, chosen, disputed, corpus, queries, documents, how, statistics, sources)]
        lists = _lists(chosen, how, counts)
        if lists:
            editions.append(_reranking(part, chosen, lists, queries, documents, how, sources))
        record["contamination"] = {
            "training queries compared": len(training_queries),
            "test queries near one of them": counts["test queries near a training query"],
            "these are": {"drop": "left out", "keep": "kept", "fail": "none"}[how.leaks],
            "similarity of near-duplicates": how.threshold,
        }
        for edition in editions:
            describe(edition, record)
    loaded = {edition.task: load_edition(folder / edition.task) for edition in editions}
    numbers = {**statistics, **{n: c for n, c in sorted(counts.items()) if c}}
    return Built(loaded, triples, numbers, (_power(len(chosen)),))


def _check_size(test: int, answered: int, judged: int, how: Assembly, counts: Mapping[str, int]) -> None:
    """Refuse a test without queries, and one with too few unless `how` allows it.

    Args:
        test: Number of test queries.
        answered: Number of queries with a positive.
        judged: Number of judged queries.
        how: Settings.
        counts: Counts of dropped items.
    """
    leaked = counts["test queries near a training query"]
    if not test:
        raise BuildError(
            f"The test is empty: {answered} queries have a positive, test is {how.test}, and {leaked} "
            "leaked. Raise test, or give more queries."
        )
    required = MIN_TEST_SHARE * how.test if how.test >= 1 else MIN_TEST_QUERIES
    if test < required and not how.small:
        expected = (
            f"{how.test:g} were requested" if how.test >= 1 else f"at least {MIN_TEST_QUERIES} are expected"
        )
        raise BuildError(
            f"The test has {test} queries where {expected}: {answered} of {judged} judged queries have a "
            f"positive, test is {how.test:g}, and {leaked} leaked. {_power(test)} Judge more queries, change "
            "test, or allow a small test (small: true, --small)."
        )


def _power(queries: int) -> str:
    return (
        f"With {queries} test queries a difference of {smallest_difference(queries):.3f} in nDCG@10 is found "
        "four times in five (paired test at 5 %, differences per query with a standard deviation of 0.3)."
    )


def _by_query(
    labels: Iterable[Label], queries: Mapping[str, Text], documents: Mapping[str, Text]
) -> tuple[Qrels, dict[str, set[str]]]:
    """Return relevance by query and document, and the documents that judges disagree on."""
    qrels: Qrels = {}
    disputed: dict[str, set[str]] = {}
    for label in labels:
        for name, texts, what in (
            (label.query_id, queries, "query"),
            (label.document_id, documents, "document"),
        ):
            if name not in texts:
                raise BuildError(f"The labels name the {what} {name!r}, which is not among the texts given.")
        if label.relevance is None:
            disputed.setdefault(label.query_id, set()).add(label.document_id)
        else:
            qrels.setdefault(label.query_id, {})[label.document_id] = label.relevance
    return qrels, disputed


def _without_leaks(
    test: list[str],
    queries: Mapping[str, Text],
    training: Sequence[str],
    how: Assembly,
    counts: Counter[str],
) -> list[str]:
    texts = [queries[query].full for query in test]
    near: dict[int, int] = {}
    for row, other, _ in near_duplicates(texts, training, threshold=how.threshold):
        near.setdefault(row, other)
    counts["test queries near a training query"] = len(near)
    if near and how.leaks == "fail":
        row, other = next(iter(near.items()))
        raise BuildError(
            f"{len(near)} test queries are near-duplicates of training queries, the first {texts[row]!r} of "
            f"{training[other]!r}. Leave them out of the training set, or choose leaks: drop."
        )
    return [query for row, query in enumerate(test) if row not in near or how.leaks == "keep"]


def _corpus(
    chosen: Qrels, disputed: Mapping[str, set[str]], documents: Mapping[str, Text], how: Assembly
) -> list[str]:
    """Return the ids of the corpus of the test, in the order of the documents."""
    positive = {document for row in chosen.values() for document, relevance in row.items() if relevance}
    if how.corpus == "labelled":
        labelled = {document for row in chosen.values() for document in row}
        return [name for name in documents if name in labelled]
    doubtful = {name for query in chosen for name in disputed.get(query, ())} - positive
    return [name for name in documents if how.corpus == "all" or name not in doubtful]


def _lists(chosen: Qrels, how: Assembly, counts: Counter[str]) -> dict[str, list[str]]:
    """Return the candidates of each reranking query: sampled positives and negatives in random order."""
    lists = {}
    for query, row in chosen.items():
        rng = random.Random(f"{how.seed} {query}")
        positives = sorted(name for name, relevance in row.items() if relevance)
        negatives = sorted(name for name, relevance in row.items() if not relevance)
        if not negatives:
            counts["reranking queries without a negative"] += 1
            continue
        drawn = rng.sample(positives, min(len(positives), how.list_positives))
        drawn += rng.sample(negatives, min(len(negatives), how.list_size - len(drawn)))
        rng.shuffle(drawn)
        lists[query] = drawn
    return lists


def _retrieval(
    out: Path,
    chosen: Qrels,
    disputed: Mapping[str, set[str]],
    corpus: list[str],
    queries: Mapping[str, Text],
    documents: Mapping[str, Text],
    how: Assembly,
    statistics: Mapping[str, Any],
    sources: Sequence[Mapping[str, Any]],
) -> Edition:
    folder = out / RETRIEVAL
    inside = set(corpus)
    write_texts(folder / "corpus.jsonl", (documents[name] for name in corpus), titles=True)
    write_texts(folder / "queries.jsonl", (queries[name] for name in chosen), titles=False)
    write_qrels(folder, chosen)
    doubtful = {query: sorted(disputed.get(query, set()) & inside) for query in chosen}
    write_disputed(folder, doubtful)
    sizes = [sum(1 for relevance in row.values() if relevance) for row in chosen.values()]
    labelled = sum(1 for row in chosen.values() for name in row if name in inside)
    numbers = {
        **statistics,
        "positives per query": f"{min(sizes)} to {max(sizes)}, mean {fmean(sizes):.2f}",
        "labelled pairs in the corpus": labelled,
        **({"disputed pairs in the corpus": number} if (number := sum(map(len, doubtful.values()))) else {}),
        "characters per query": _lengths(queries[name].text for name in chosen),
        "characters per document": _lengths(documents[name].full for name in corpus),
    }
    counts = {"queries": len(chosen), "corpus": len(corpus), "qrels": sum(sizes)}
    return _finish(folder, RETRIEVAL, how, counts, numbers, sources)


def _reranking(
    out: Path,
    chosen: Qrels,
    lists: Mapping[str, list[str]],
    queries: Mapping[str, Text],
    documents: Mapping[str, Text],
    how: Assembly,
    sources: Sequence[Mapping[str, Any]],
) -> Edition:
    folder = out / RERANKING
    used = {name for names in lists.values() for name in names}
    write_texts(folder / "corpus.jsonl", (d for name, d in documents.items() if name in used), titles=True)
    write_texts(folder / "queries.jsonl", (queries[name] for name in lists), titles=False)
    qrels = {query: {name: chosen[query][name] for name in sorted(names)} for query, names in lists.items()}
    write_qrels(folder, qrels)
    rows = ({"query-id": query, "corpus-ids": names} for query, names in lists.items())
    write_rows(folder / "top_ranked.jsonl", rows)
    relevant = sum(1 for row in qrels.values() for relevance in row.values() if relevance)
    sizes = [len(names) for names in lists.values()]
    numbers = {"candidates per query": f"{min(sizes)} to {max(sizes)}, mean {fmean(sizes):.1f}"}
    counts = {"queries": len(lists), "corpus": len(used), "qrels": relevant}
    return _finish(folder, RERANKING, how, counts, numbers, sources)


def _finish(
    folder: Path,
    task: str,
    how: Assembly,
    counts: dict[str, int],
    statistics: Mapping[str, Any],
    sources: Sequence[Mapping[str, Any]],
) -> Edition:
    card = write_card(task, how.name, how.licence, {**counts, **statistics}, sources)
    (folder / "README.md").write_bytes(card.encode())
    return write_manifest(
        folder,
        task=task,
        name=how.name,
        version=how.version,
        licence=how.licence,
        counts=counts,
        seed=how.seed,
        statistics=dict(statistics),
        **named(sources),
    )


def _write_triples(
    out: Path,
    train: Qrels,
    queries: Mapping[str, Text],
    documents: Mapping[str, Text],
    counts: Counter[str],
) -> int:
    files: dict[str, list[dict[str, Any]]] = {"triples": [], "pairs": []}
    for query, row in train.items():
        negatives = [documents[name].full for name in sorted(row) if not row[name]]
        positives = [documents[name].full for name in sorted(row) if row[name]]
        content = {"query": queries[query].full, "positives": positives}
        if negatives:
            files["triples"].append({**content, "negatives": negatives})
        else:  # a stage with hard negatives refuses rows without any
            files["pairs"].append(content)
    counts["training queries without a negative"] = len(files["pairs"])
    for name, rows in files.items():
        if rows:
            write_rows(out / "train" / f"{name}.jsonl", rows)
    return len(files["triples"])


def _lengths(texts: Iterable[str]) -> str:
    lengths = [len(text) for text in texts]
    return f"{min(lengths)} to {max(lengths)}, mean {fmean(lengths):.0f}"
