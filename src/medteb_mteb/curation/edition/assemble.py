"""Step `assemble`: labels become editions that mteb scores models on, and triples that `mar train` reads."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from mar_st.errors import MarError
from mar_st.options import Argument, Switch
from medteb_mteb.curation.edition.write import EditionSettings, write_edition
from medteb_mteb.curation.files.layout import write_disputed, write_qrels, write_rows, write_texts
from medteb_mteb.curation.files.read import read_texts
from medteb_mteb.curation.labels.grades import read_labels
from medteb_mteb.curation.lineage import provenance_of
from medteb_mteb.curation.step import SEED, Counts, Estimate, Input, Step
from medteb_mteb.curation.texts.near_duplicates import QUERY_SIMILARITY, near_duplicates, split_queries
from medteb_mteb.curation.training.rows import Rows, read_held_out, training_queries
from medteb_mteb.report.intervals import smallest_difference

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from medteb_mteb.curation.files.layout import Qrels
    from medteb_mteb.curation.files.records import Text
    from medteb_mteb.curation.labels.grades import Label
    from medteb_mteb.editions import Edition

RETRIEVAL, RERANKING = "MedTEBRetrieval", "MedTEBReranking"
#: Share of the requested test queries below which a test is refused.
MIN_TEST_SHARE = 0.9
#: Number of test queries below which a share is refused: fewer distinguish only very different systems.
MIN_TEST_QUERIES = 30
#: Maximum number of candidates of a reranking list, and of positives among them.
LIST_SIZE, LIST_POSITIVES = 100, 10


class AssembleSettings(EditionSettings):
    """Options of the step."""

    labels: Annotated[Path, Argument(), Input("labels")] = Field(
        description="Labels: the folder of 'medteb consensus'."
    )
    queries: Annotated[Path, Argument(), Input("texts")] = Field(description="Queries.")
    documents: Annotated[Path, Argument(), Input("texts")] = Field(description="Documents.")
    against: Annotated[tuple[str, ...], Input("triples", "pairs", "alignment", earlier="training")] = Field(
        (), description="Training data whose queries must not be in the test; may be repeated."
    )
    keep_away: Annotated[tuple[str, ...], Input("editions", "texts", earlier="tests")] = Field(
        (), description="Other tests whose queries must not be in the training data; may be repeated."
    )
    threshold: float = Field(
        QUERY_SIMILARITY, gt=0, le=1, description="Similarity from which two queries are near-duplicates."
    )
    small: bool = Field(False, description="Accept a test with fewer queries than requested, or than 30.")
    sources: Annotated[dict[str, str], Switch("--source")] = Field(
        default_factory=dict, description="NAME=LICENCE of a source of the texts; may be repeated."
    )


@dataclass
class _Material:
    """What editions are made of.

    Attributes:
        queries: Queries by id.
        documents: Documents by id.
        qrels: Relevance by query and document.
        disputed: Documents that the judges disagree on, by query.
        counts: Numbers of dropped items by reason.
    """

    queries: dict[str, Text]
    documents: dict[str, Text]
    qrels: Qrels = field(default_factory=dict)
    disputed: dict[str, set[str]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, labels: Iterable[Label]) -> None:
        """Sort labels into `qrels` and `disputed`.

        Raises:
            MarError: A label names a missing text.
        """
        for label in labels:
            for name, texts in ((label.query_id, self.queries), (label.document_id, self.documents)):
                if name not in texts:
                    raise MarError(f"The labels name {name!r}, which is not among the texts given.")
            if label.relevance is None:
                self.disputed.setdefault(label.query_id, set()).add(label.document_id)
            else:
                self.qrels.setdefault(label.query_id, {})[label.document_id] = label.relevance
        self.counts["disputed"] = sum(map(len, self.disputed.values()))


def assemble(settings: AssembleSettings) -> Counts:
    """Make test editions and training triples from labels.

    Writes MedTEBRetrieval, MedTEBReranking, train/triples.jsonl, and train/pairs.jsonl with training queries
    without a judged negative. Set MEDTEB_DATA to the folder to evaluate on the editions. The same input gives
    the same bytes.
    """
    material = _Material(
        {text.id: text for text in read_texts(settings.queries)},
        {text.id: text for text in read_texts(settings.documents)},
    )
    material.add(read_labels(settings.labels))
    counts = material.counts
    answered = {query: row for query, row in material.qrels.items() if any(row.values())}
    judged = len({*material.qrels, *material.disputed})
    counts["queries without a positive"] = judged - len(answered)
    if not answered:
        raise MarError("No query has a positive, so there is nothing to make a test of.")
    texts_of = {query: material.queries[query].full for query in sorted(answered)}
    tests, others, clusters = split_queries(texts_of, settings.test, threshold=settings.threshold)
    trained_on = [query for path in settings.against for query in training_queries(path)]
    tested = [texts_of[query] for query in tests]
    near = {row for row, _, _ in near_duplicates(tested, trained_on, threshold=settings.threshold)}
    counts["test queries near a training query"] = len(near)
    test = [query for row, query in enumerate(tests) if row not in near]
    _check_size(len(test), f"{len(answered)} of {judged} judged queries have a positive", settings, counts)
    held_out = read_held_out(settings.keep_away, settings.threshold)
    leaks = held_out.leaks([texts_of[query] for query in others])
    counts["training queries near another test"] = len(leaks)
    train = {query: answered[query] for row, query in enumerate(others) if row not in leaks}
    triples = _write_training(settings.out / "train", train, material)
    chosen = {query: answered[query] for query in test}
    lists = _lists(chosen, counts)
    statistics = {
        "clusters of near-duplicate queries": len(clusters),
        "largest cluster": max(clusters),
        **{name: number for name, number in sorted(counts.items()) if number},
    }
    named = [{"name": name, "licence": licence} for name, licence in settings.sources.items()]
    provenance: dict[str, Any] = provenance_of([settings.queries, settings.documents, settings.labels])
    provenance["sources"] = provenance.get("sources", []) + named
    provenance["contamination"] = {
        "training queries compared": len(trained_on),
        "test queries near one of them": counts["test queries near a training query"],
        "these are": "left out",
        "similarity of near-duplicates": settings.threshold,
    }
    editions = [_retrieval(chosen, material, settings, statistics, provenance)]
    if lists:
        editions.append(_reranking(chosen, lists, material, settings, provenance))
    return Counts(
        len(test),
        queries=len(test),
        details={
            "editions": {one.task: {**one.counts, "digest": one.digest[:12]} for one in editions},
            "training triples": triples,
            **statistics,
        },
        notes=(_power(len(chosen)),),
    )


def _power(queries: int) -> str:
    return (
        f"With {queries} test queries a difference of {smallest_difference(queries):.3f} in nDCG@10 is found "
        "four times in five (paired test at 5 %, differences per query with a standard deviation of 0.3)."
    )


def _required(settings: AssembleSettings) -> float:
    return MIN_TEST_SHARE * settings.test if settings.test >= 1 else MIN_TEST_QUERIES


def _check_size(test: int, available: str, settings: AssembleSettings, counts: Mapping[str, int]) -> None:
    """Refuse a test without queries, and one with too few unless the settings allow it."""
    if test and (test >= _required(settings) or settings.small):
        return
    raise MarError(
        f"The test has {test} queries where {_required(settings):g} are required: {available}, 'test' is "
        f"{settings.test:g}, and {counts['test queries near a training query']} leaked. Judge more queries, "
        "change 'test', or allow a small test ('small')."
    )


def _lists(chosen: Qrels, counts: Counter[str]) -> dict[str, list[str]]:
    """Return the candidates of each reranking query: sampled positives and negatives in random order."""
    lists = {}
    for query, row in chosen.items():
        rng = random.Random(f"{SEED} {query}")
        positives = sorted(name for name, relevance in row.items() if relevance)
        negatives = sorted(name for name, relevance in row.items() if not relevance)
        if not negatives:
            counts["reranking queries without a negative"] += 1
            continue
        drawn = rng.sample(positives, min(len(positives), LIST_POSITIVES))
        drawn += rng.sample(negatives, min(len(negatives), LIST_SIZE - len(drawn)))
        rng.shuffle(drawn)
        lists[query] = drawn
    return lists


def _corpus(chosen: Qrels, material: _Material) -> list[str]:
    """Return the ids of the documents of the test: all but those that judges disagree on for a test query."""
    positive = {document for row in chosen.values() for document, relevance in row.items() if relevance}
    doubtful = {name for query in chosen for name in material.disputed.get(query, ())} - positive
    return [name for name in material.documents if name not in doubtful]


def _retrieval(
    chosen: Qrels,
    material: _Material,
    settings: AssembleSettings,
    statistics: Mapping[str, Any],
    provenance: Mapping[str, Any],
) -> Edition:
    folder, documents = settings.out / RETRIEVAL, material.documents
    corpus = _corpus(chosen, material)
    inside = set(corpus)
    write_texts(folder / "corpus.jsonl", (documents[name] for name in corpus), titles=True)
    write_texts(folder / "queries.jsonl", (material.queries[name] for name in chosen), titles=False)
    write_qrels(folder, chosen)
    doubtful = {query: sorted(material.disputed.get(query, set()) & inside) for query in chosen}
    write_disputed(folder, doubtful)
    sizes = [sum(1 for relevance in row.values() if relevance) for row in chosen.values()]
    disputed = sum(map(len, doubtful.values()))
    numbers = {
        **statistics,
        "positives per query": _range(sizes, 2),
        "labelled pairs in the corpus": sum(1 for row in chosen.values() for name in row if name in inside),
        **({"disputed pairs in the corpus": disputed} if disputed else {}),
        "characters per query": _range([len(material.queries[name].text) for name in chosen]),
        "characters per document": _range([len(documents[name].full) for name in corpus]),
    }
    counts = {"queries": len(chosen), "corpus": len(corpus), "qrels": sum(sizes)}
    return write_edition(settings, RETRIEVAL, counts, numbers, provenance)


def _reranking(
    chosen: Qrels,
    lists: Mapping[str, list[str]],
    material: _Material,
    settings: AssembleSettings,
    provenance: Mapping[str, Any],
) -> Edition:
    folder = settings.out / RERANKING
    used = {name for names in lists.values() for name in names}
    texts = (text for name, text in material.documents.items() if name in used)
    write_texts(folder / "corpus.jsonl", texts, titles=True)
    write_texts(folder / "queries.jsonl", (material.queries[name] for name in lists), titles=False)
    qrels = {query: {name: chosen[query][name] for name in sorted(names)} for query, names in lists.items()}
    write_qrels(folder, qrels)
    rows = ({"query-id": query, "corpus-ids": names} for query, names in lists.items())
    write_rows(folder / "top_ranked.jsonl", rows)
    relevant = sum(1 for row in qrels.values() for relevance in row.values() if relevance)
    numbers = {"candidates per query": _range([len(names) for names in lists.values()], 1)}
    counts = {"queries": len(lists), "corpus": len(used), "qrels": relevant}
    return write_edition(settings, RERANKING, counts, numbers, provenance)


def _write_training(folder: Path, train: Qrels, material: _Material) -> int:
    rows, documents = Rows(), material.documents
    for query, row in train.items():
        negatives = [documents[name].full for name in sorted(row) if not row[name]]
        positives = [documents[name].full for name in sorted(row) if row[name]]
        rows.add_example({"query": material.queries[query].full, "positives": positives}, negatives)
    material.counts["training queries without a negative"] = rows.number("pairs")
    rows.write(folder, "triples")
    return rows.number("triples")


def _range(numbers: Sequence[int], digits: int = 0) -> str:
    return f"{min(numbers)} to {max(numbers)}, mean {fmean(numbers):.{digits}f}"


def _estimate(settings: AssembleSettings, sizes: Mapping[str, Estimate]) -> Estimate:
    queries = sizes["labels"].queries or sizes["queries"].rows
    test = min(queries, int(settings.test)) if settings.test >= 1 else round(queries * settings.test)
    few = test < _required(settings) and not settings.small
    error = (
        f"the test would have at most {test} queries of the {_required(settings):g} that are required. Give "
        "more queries, raise 'test', or allow a small test ('small: true')"
    )
    return Estimate(test, queries=test, error=error * few)


ASSEMBLE = Step("assemble", AssembleSettings, assemble, "editions", _estimate, trains=True)
