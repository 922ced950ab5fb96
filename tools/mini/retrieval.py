"""The retrieval test split: 5,000 documents, and the queries of the retrieval and reranking tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tools.mini.cells import TWINS, seeded
from tools.mini.documents import build_document
from tools.mini.labels import RELEVANT_GRADES, grade
from tools.mini.queries import build_query, surfaces, usable_patterns
from tools.mini.wording import wording_of

if TYPE_CHECKING:
    import random
    from collections.abc import Container, Sequence

    from tools.mini.cells import Cell, World
    from tools.mini.documents import Document
    from tools.mini.queries import Query

N_DOCUMENTS = 5_000
N_QUERIES = 300  # for retrieval, and again for reranking
MAX_POSITIVES = 6

# Shares of the queries; exact matching fails on lay words.
_KIND_SHARE = {"condition": 0.5, "drug": 0.22, "symptom": 0.15, "exam": 0.13}
_GROUP_SHARE = 0.2
_TERM_SHARE = {"name": 0.63, "alias": 0.13, "lay": 0.24}
_HELD_OUT_SHARE = 0.3
# The first patterns of an intent are plain ones, as most people type them.
_PLAIN, _PLAIN_WEIGHT = 3, 6
# Possible numbers of documents written for a tested cell, and their weights.
_OWN_DOCUMENTS, _OWN_WEIGHTS = (1, 2, 3, 4), (30, 35, 22, 13)

_AMBIGUOUS = frozenset(TWINS) | frozenset(TWINS.values())


@dataclass(frozen=True)
class TestSplit:
    """Documents by id and two disjoint sets of queries by id."""

    __test__ = False  # not a test case, despite its name

    corpus: dict[str, Document]
    retrieval: dict[str, Query]
    reranking: dict[str, Query]


class CorpusIndex:
    """Documents by entity, and by (kind, intent) and entity, so that not every pair must be graded."""

    def __init__(self, corpus: dict[str, Document]) -> None:
        self.corpus = corpus
        self.by_entity: dict[str, list[str]] = {}
        self.by_intent: dict[tuple[str, str], dict[str, list[str]]] = {}
        for doc_id, document in corpus.items():
            self.by_entity.setdefault(document.entity, []).append(doc_id)
            kind = document.entity.partition(":")[0]
            for intent in sorted({cell.intent for cell in document.answers}):
                of_intent = self.by_intent.setdefault((kind, intent), {})
                of_intent.setdefault(document.entity, []).append(doc_id)

    def graded(self, world: World, query_cell: Cell) -> dict[str, str]:
        """Return the letters of all documents about the query's entity; all other documents are C or D."""
        return {
            doc_id: grade(world, query_cell, self.corpus[doc_id])
            for doc_id in self.by_entity.get(query_cell.entity, ())
        }


def positives(graded: dict[str, str]) -> list[str]:
    """Return the ids graded S or A."""
    return [doc_id for doc_id, letter in graded.items() if letter in RELEVANT_GRADES]


def build_test(world: World, seed: int) -> TestSplit:
    """Choose the tested cells, write a corpus for them, then write the queries."""
    rng = seeded("test", seed)
    tested = _choose_cells(world, 3 * N_QUERIES, rng)
    corpus = _build_corpus(world, tested, seed, rng)
    index = CorpusIndex(corpus)
    answerable = [cell for cell in tested if 1 <= len(positives(index.graded(world, cell))) <= MAX_POSITIVES]
    if len(answerable) < 2 * N_QUERIES:
        raise ValueError(f"{len(answerable)} answerable cells, {2 * N_QUERIES} needed; widen the corpus.")
    queries = [_ask(world, cell, seed, rng) for cell in answerable[: 2 * N_QUERIES]]
    first, second = queries[:N_QUERIES], queries[N_QUERIES:]
    return TestSplit(
        corpus,
        {f"q{number:04d}": query for number, query in enumerate(first)},
        {f"r{number:04d}": query for number, query in enumerate(second)},
    )


def _choose_cells(world: World, count: int, rng: random.Random) -> list[Cell]:
    """Return distinct cells, stratified by kind of entity, then by intent and group."""
    pools: dict[str, dict[str, list[Cell]]] = {}
    for cell in world.cells:
        kind, _, name = cell.entity.partition(":")
        if name in _AMBIGUOUS:
            continue
        bucket = f"{cell.intent}+group" if cell.group else cell.intent
        pools.setdefault(kind, {}).setdefault(bucket, []).append(cell)
    for buckets in pools.values():
        for cells in buckets.values():
            rng.shuffle(cells)
    chosen: list[Cell] = []
    while len(chosen) < count:
        kind = rng.choices(list(_KIND_SHARE), list(_KIND_SHARE.values()))[0]
        grouped = [name for name in pools[kind] if name.endswith("+group")]
        general = [name for name in pools[kind] if not name.endswith("+group")]
        bucket = rng.choice(grouped if grouped and rng.random() < _GROUP_SHARE else general)
        if pools[kind][bucket]:
            chosen.append(pools[kind][bucket].pop())
    return chosen


def _build_corpus(world: World, tested: Sequence[Cell], seed: int, rng: random.Random) -> dict[str, Document]:
    """Write documents for the tested cells, then documents of other cells as near misses and distractors."""
    wanted: list[tuple[Cell, int]] = []
    for cell in tested[: 2 * N_QUERIES + N_QUERIES // 2]:
        wanted += [(cell, copy) for copy in range(rng.choices(_OWN_DOCUMENTS, _OWN_WEIGHTS)[0])]
    untested = sorted(set(world.cells) - set(tested))
    rng.shuffle(untested)
    wanted += [(cell, 0) for cell in untested]
    documents: dict[str, Document] = {}
    for cell, copy in wanted:
        if len(documents) == N_DOCUMENTS:
            break
        document = distinct_document(world, cell, copy, documents, "test", seed)
        documents[document.text] = document
    if len(documents) < N_DOCUMENTS:
        raise ValueError(f"{len(documents)} distinct documents, {N_DOCUMENTS} needed.")
    ordered = list(documents.values())
    rng.shuffle(ordered)
    return {f"d{number:05d}": document for number, document in enumerate(ordered)}


def distinct_document(world: World, cell: Cell, copy: int, used: Container[str], *seed: object) -> Document:
    """Return a document whose text is not in ``used``."""
    for attempt in range(100):
        document = build_document(world, cell, *seed, copy, attempt)
        if document.text not in used:
            return document
    raise ValueError(f"no new document for {cell} in 100 attempts; add wording.")


def _ask(world: World, cell: Cell, seed: int, rng: random.Random) -> Query:
    entity = world.entities[cell.entity]
    terms = surfaces(entity)
    kinds = [kind for kind in _TERM_SHARE if any(kind == other for _, other in terms)]
    kind = rng.choices(kinds, [_TERM_SHARE[name] for name in kinds])[0]
    term = rng.choice([text for text, other in terms if other == kind])
    wording = wording_of(entity, cell.intent)
    indices = wording.held_out if rng.random() < _HELD_OUT_SHARE else wording.shared
    usable = usable_patterns(entity, cell.intent, term, kind, indices)
    weights = [_PLAIN_WEIGHT if index < _PLAIN else 1 for index in usable]
    return build_query(world, cell, term, kind, rng.choices(usable, weights)[0], "test", seed)
