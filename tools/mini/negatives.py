"""Near misses: documents that a query must not retrieve, from wrong answers to lexical look-alikes."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from functools import lru_cache
from typing import TYPE_CHECKING

from tools.mini.labels import RELEVANT_GRADES, grade

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from tools.mini.cells import Cell, World
    from tools.mini.documents import Document
    from tools.mini.retrieval import CorpusIndex


def wrong_answers(world: World, query_cell: Cell, index: CorpusIndex) -> list[str]:
    """Return the documents graded B: about the right entity, but with another question, polarity or group."""
    graded = index.graded(world, query_cell)
    return [doc_id for doc_id, letter in graded.items() if letter not in RELEVANT_GRADES]


def same_intent(world: World, query_cell: Cell, index: CorpusIndex, related: bool) -> list[str]:
    """Return the documents that answer the same question about another entity, near (C) or far (D)."""
    kind = query_cell.entity.partition(":")[0]
    of_intent = index.by_intent.get((kind, query_cell.intent), {})
    near = world.neighbours[query_cell.entity]
    if related:
        entities = [entity for entity in near if entity in of_intent]
    else:
        entities = [entity for entity in of_intent if entity != query_cell.entity and entity not in near]
    return [doc_id for entity in entities for doc_id in of_intent[entity]]


def sample(rng: random.Random, ids: Sequence[str], count: int) -> list[str]:
    """Return at most ``count`` ids, in random order."""
    return rng.sample(ids, min(count, len(ids)))


class LexicalIndex:
    """Index of character bigrams with idf weights, which finds documents that look like a query."""

    def __init__(self, corpus: dict[str, Document]) -> None:
        self._postings: dict[str, list[str]] = defaultdict(list)
        for doc_id, document in corpus.items():
            for bigram in sorted(set(bigrams(f"{document.title} {document.text}"))):
                self._postings[bigram].append(doc_id)
        self._size = len(corpus)

    def nearest(self, text: str, count: int) -> list[str]:
        """Return ids of the ``count`` documents most similar to ``text``; ties go to the smaller id."""
        scores: dict[str, float] = defaultdict(float)
        for bigram in sorted(set(bigrams(text))):
            posting = self._postings.get(bigram, [])
            weight = math.log(1 + self._size / (1 + len(posting)))
            for doc_id in posting:
                scores[doc_id] += weight
        return sorted(scores, key=lambda doc_id: (-scores[doc_id], doc_id))[:count]


def bigrams(text: str) -> list[str]:
    """Return the character bigrams of a text without spaces."""
    packed = "".join(text.split())
    return [packed[i : i + 2] for i in range(len(packed) - 1)]


def bigram_cosine(first: str, second: str) -> float:
    """Return the cosine of the bigram counts of two texts."""
    (one, first_square), (two, second_square) = _counted(first), _counted(second)
    dot = sum(count * two[key] for key, count in one.items() if key in two)
    norm = math.sqrt(first_square * second_square)
    return dot / norm if norm else 0.0


@lru_cache(maxsize=4096)
def _counted(text: str) -> tuple[Counter[str], int]:
    """Return the counts of the bigrams of a text, and the sum of their squares."""
    counts = Counter(bigrams(text))
    return counts, sum(count * count for count in counts.values())


def judged(world: World, query_cell: Cell, index: CorpusIndex, rng: random.Random) -> dict[str, str]:
    """Return the published letters of a retrieval query, by document: all of its entity, and near misses."""
    letters = index.graded(world, query_cell)
    for doc_id in sample(rng, same_intent(world, query_cell, index, related=True), 8):
        letters[doc_id] = "C"
    for doc_id in sample(rng, same_intent(world, query_cell, index, related=False), 4):
        letters[doc_id] = grade(world, query_cell, index.corpus[doc_id])
    return letters
