"""The train split: shares entities with the test splits, but no query, document or (term, pattern) pair."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tools.mini.cells import seeded
from tools.mini.negatives import same_intent, sample, wrong_answers
from tools.mini.queries import build_query, surfaces, usable_patterns
from tools.mini.retrieval import CorpusIndex, distinct_document, positives
from tools.mini.wording import wording_of

if TYPE_CHECKING:
    import random

    from tools.mini.cells import Cell, World
    from tools.mini.documents import Document
    from tools.mini.queries import Query

N_DOCUMENTS = 20_000
N_TRIPLES = 20_600
_MAX_POSITIVES = 3
_N_WRONG, _N_SAME_INTENT = 2, 2
_MAX_ROUNDS = 12


class MiniTriple(NamedTuple):
    """A query with documents that answer it and hard negatives."""

    query_id: str
    positives: list[str]
    negatives: list[str]


@dataclass(frozen=True)
class TrainSplit:
    """Documents and queries by id, and the triples over them."""

    corpus: dict[str, Document]
    queries: dict[str, Query]
    triples: list[MiniTriple]


def build_train(world: World, tests: list[Query], texts: set[str], seed: int) -> TrainSplit:
    """Write a train split without overlap with the test splits.

    Args:
        world: All entities and cells.
        tests: All test queries; their texts and (term, pattern) pairs are not used.
        texts: Further texts that must not occur (test documents, STS sentences).
        seed: Seed of the edition.
    """
    rng = seeded("train", seed)
    corpus = _build_corpus(world, texts, seed, rng)
    index = CorpusIndex(corpus)
    queries = _build_queries(world, tests, texts, seed, rng)
    by_id = {f"tq{number:05d}": query for number, query in enumerate(queries)}
    triples = [_triple(world, query_id, query, index, seed) for query_id, query in by_id.items()]
    return TrainSplit(corpus, by_id, triples)


def _build_corpus(world: World, texts: set[str], seed: int, rng: random.Random) -> dict[str, Document]:
    """Return one document per cell, then second, third, ... ones; the last round covers random cells."""
    cells = list(world.cells)
    wanted: list[tuple[Cell, int]] = []
    copy = 0
    while len(wanted) < N_DOCUMENTS:
        wanted += [(cell, copy) for cell in cells[: N_DOCUMENTS - len(wanted)]]
        rng.shuffle(cells)
        copy += 1
    documents: dict[str, Document] = {}
    used_texts = dict.fromkeys(texts)
    for cell, copy in wanted:
        document = distinct_document(world, cell, copy, used_texts, "train", seed)
        documents[document.text] = document
        used_texts[document.text] = None
    ordered = list(documents.values())
    rng.shuffle(ordered)
    return {f"t{number:05d}": document for number, document in enumerate(ordered)}


def _build_queries(
    world: World, tests: list[Query], texts: set[str], seed: int, rng: random.Random
) -> list[Query]:
    """Return queries for all cells in several rounds, each with the least used term of its entity."""
    used = {query.pair for query in tests}
    seen = {query.text for query in tests} | texts
    term_counts: Counter[str] = Counter()
    queries: list[Query] = []
    for number in range(_MAX_ROUNDS):
        cells = list(world.cells)
        rng.shuffle(cells)
        for cell in cells:
            query = _query(world, cell, number, used, term_counts, seed, rng)
            if query is None or query.text in seen:
                continue
            seen.add(query.text)
            used.add(query.pair)
            term_counts[query.term] += 1
            queries.append(query)
            if len(queries) == N_TRIPLES:
                return queries
    raise ValueError(
        f"{len(queries)} train queries after {_MAX_ROUNDS} rounds, {N_TRIPLES} needed; add patterns."
    )


def _query(
    world: World,
    cell: Cell,
    number: int,
    used: set[tuple[str, str]],
    term_counts: Counter[str],
    seed: int,
    rng: random.Random,
) -> Query | None:
    """Return a query for a cell with an unused (term, pattern) pair; None if all are used."""
    entity = world.entities[cell.entity]
    wording = wording_of(entity, cell.intent)
    terms = surfaces(entity)
    rng.shuffle(terms)
    for term, kind in sorted(terms, key=lambda item: term_counts[item[0]]):
        free = [
            index
            for index in usable_patterns(entity, cell.intent, term, kind, wording.shared)
            if (term, f"{entity.kind}.{cell.intent}.{index}") not in used
        ]
        if free:
            return build_query(world, cell, term, kind, rng.choice(free), "train", seed, number)
    return None


def _triple(world: World, query_id: str, query: Query, index: CorpusIndex, seed: int) -> MiniTriple:
    rng = seeded("triple", seed, query_id)
    relevant = positives(index.graded(world, query.cell))
    direct = [d for d in relevant if index.corpus[d].answers.get(query.cell) == "S"]
    partial = [d for d in relevant if d not in set(direct)]
    chosen = (sample(rng, direct, _MAX_POSITIVES) + sample(rng, partial, _MAX_POSITIVES))[:_MAX_POSITIVES]
    wrong = wrong_answers(world, query.cell, index)
    negatives = sample(rng, wrong, _N_WRONG)
    for related in (True, False):
        others = same_intent(world, query.cell, index, related=related)
        negatives += sample(rng, others, _N_WRONG + _N_SAME_INTENT - len(negatives))
    return MiniTriple(query_id, chosen, negatives)
