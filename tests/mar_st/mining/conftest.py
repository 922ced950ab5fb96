from __future__ import annotations

import random

import numpy as np
import pytest

from mar_st.data.sequences import Triple
from mar_st.mining.retrievers import best

LETTERS = "头疼发热吃什么药好呢感冒咳嗽怎么办高血压医生"


class Table:
    """A retriever whose scores depend on query and document alone, in quarters, so that many are equal."""

    def __init__(self, name="table"):
        self.name = name

    def identity(self):
        return {"kind": "table", "name": self.name}

    def prepare(self, queries, corpus):
        self.queries, self.corpus = queries, corpus

    def value(self, query, document):
        return random.Random(f"{self.name}{query}\0{document}").randrange(-8, 40) / 4

    def all_scores(self, row):
        return np.array([self.value(self.queries[row], text) for text in self.corpus], dtype=np.float32)

    def search(self, rows, k):
        return np.array([best(self.all_scores(row), k) for row in rows])

    def score(self, rows, documents):
        return [self.all_scores(row)[places] for row, places in zip(rows, documents, strict=True)]


@pytest.fixture
def table():
    return Table()


@pytest.fixture
def texts():
    """Distinct texts of 6 to 14 characters."""
    rng = random.Random(3)
    distinct = {}
    while len(distinct) < 90:
        distinct["".join(rng.choices(LETTERS, k=rng.randint(6, 14)))] = None
    return list(distinct)


@pytest.fixture
def triples(texts):
    """Thirty rows of twenty queries; queries share documents, and some have labelled negatives."""
    rng = random.Random(4)
    queries, documents = texts[:20], texts[20:]
    rows = [
        Triple(
            query, tuple(rng.sample(documents, 2)), tuple(rng.sample(documents, n % 2)), source=f"s{n % 3}"
        )
        for n, query in enumerate(queries)
    ]
    rows += [Triple(rng.choice(queries), (rng.choice(documents),)) for _ in range(10)]
    return [
        Triple(t.query, t.positives, tuple(n for n in t.negatives if n not in t.positives), source=t.source)
        for t in rows
    ]


@pytest.fixture
def documents(texts):
    return texts[20:]
