"""The reranking test split: lists of 100 candidates in random order."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tools.mini.cells import seeded
from tools.mini.labels import grade
from tools.mini.negatives import LexicalIndex, same_intent, sample
from tools.mini.retrieval import positives

if TYPE_CHECKING:
    from tools.mini.cells import World
    from tools.mini.queries import Query
    from tools.mini.retrieval import CorpusIndex

LIST_SIZE = 100
_N_WRONG, _N_SAME_INTENT, _N_LEXICAL = 12, 20, 25


class CandidateList(NamedTuple):
    """The candidates of a query in list order, and the letter of each."""

    ids: list[str]
    letters: dict[str, str]


def build_lists(
    world: World, queries: dict[str, Query], index: CorpusIndex, seed: int
) -> dict[str, CandidateList]:
    """Return lists of ``LIST_SIZE`` positives, wrong answers, neighbours, look-alikes, random documents."""
    lexical = LexicalIndex(index.corpus)
    everything = list(index.corpus)
    lists: dict[str, CandidateList] = {}
    for query_id, query in queries.items():
        rng = seeded("rerank", seed, query_id)
        graded = index.graded(world, query.cell)
        relevant = positives(graded)
        own = set(graded)
        chosen = dict.fromkeys(relevant)
        chosen |= dict.fromkeys(sample(rng, [d for d in graded if d not in chosen], _N_WRONG))
        chosen |= dict.fromkeys(
            sample(rng, same_intent(world, query.cell, index, related=True), _N_SAME_INTENT)
        )
        similar = [d for d in lexical.nearest(query.text, 3 * _N_LEXICAL) if d not in chosen and d not in own]
        chosen |= dict.fromkeys(similar[:_N_LEXICAL])
        while len(chosen) < LIST_SIZE:
            doc_id = rng.choice(everything)
            if doc_id not in own:
                chosen[doc_id] = None
        ids = list(chosen)
        rng.shuffle(ids)
        lists[query_id] = CandidateList(ids, {d: grade(world, query.cell, index.corpus[d]) for d in ids})
    return lists
