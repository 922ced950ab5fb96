"""Round-trip consistency: a query is kept if a retriever finds the document that it was written for.

Source: BMRetriever (arXiv 2404.18443, section on synthetic data): a synthetic query stays only if its passage
is among the three best of E5-base over the set's own corpus; its hard negative is a random one of the best
100, positives excluded.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field
from tqdm.auto import tqdm

from mar_st.options import Argument
from medteb_mteb.curation.files.read import read_texts
from medteb_mteb.curation.pooling import RetrieverSettings, open_retriever
from medteb_mteb.curation.step import SEED, Counts, Input, Model, Step
from medteb_mteb.curation.training.rows import TEST_QUERY, AgainstSettings, Rows

if TYPE_CHECKING:
    from collections.abc import Container

    from mar_st.data import Triple
    from mar_st.mining.miner import Miner
    from mar_st.mining.retrievers import Retriever
    from mar_st.mining.rules import MinedQuery, Rules

__all__ = ["ROUND_TRIP", "RoundTripSettings", "round_trip"]

#: Depth of the search, for negatives and reported ranks, as published.
TOP = 100
#: Rows that are searched for at once.
ROWS_PER_SEARCH = 512
#: Why a pair is dropped: its document has a rank, or is beyond the depth of the search.
BEYOND_DEPTH, NOT_FOUND = "beyond-depth", "not-found"
#: Ranks up to which pairs are counted.
RANK_CUTOFFS = (1, 3, 5, 10, 20, 50, 100)


class RoundTripSettings(RetrieverSettings, AgainstSettings):
    """Options of `medteb round-trip`."""

    pairs: Annotated[Path, Argument(), Input("pairs", "triples")] = Field(
        description="Pairs or triples in any form that mar train reads."
    )
    retriever: Annotated[str, Model()] = Field(description="bm25, bm25:jieba, or an embedding model.")
    documents: Annotated[Path | None, Input("texts")] = Field(
        None, description="Corpus to search; default: the documents of the pairs."
    )
    depth: int = Field(3, ge=1, le=TOP, description="Maximum rank of the document of a kept pair.")
    negatives: int = Field(0, ge=0, le=TOP, description="Number of hard negatives to draw for each row.")


def round_trip(settings: RoundTripSettings) -> Counts:
    """Keep the pairs whose document a retriever finds for their query.

    `triples.jsonl` holds rows with negatives and `pairs.jsonl` rows without, each with the `ranks` of its
    positives; `dropped.jsonl` holds dropped pairs with the reason and the rank (`null`: not found). Ranks
    count from 1 over the documents except other positives of the query and the query itself.
    """
    from mar_st.data import read_source  # lazy: transformers
    from mar_st.recipes.schema import Data  # lazy: pydantic

    # A prompt would conflict with the rows' instructions, and a template would change them.
    entry = Data(name="pairs", path=str(settings.pairs), prompt="", instruction="{instruction}")
    triples = list(read_source(entry, 0).triples)
    corpus = None if settings.documents is None else [text.full for text in read_texts(settings.documents)]
    leaks = settings.held_out().leaks([triple.query for triple in triples])
    from mar_st.mining.miner import Miner  # lazy: torch, which is not needed to refuse rows
    from mar_st.mining.rules import Rules  # lazy: torch

    retriever = open_retriever(settings.retriever, settings)
    rules = Rules(num_negatives=settings.negatives, top=TOP, fill=False, consistent=settings.depth, seed=SEED)
    miner = Miner([retriever], triples, corpus, rules=rules)
    decide = _Filter(miner, retriever, rules, {triples[row].query for row in leaks})
    with tqdm(total=len(triples), desc="round-trip", unit="rows", disable=None) as bar:
        for start in range(0, len(triples), ROWS_PER_SEARCH):
            part = triples[start : start + ROWS_PER_SEARCH]
            decide(part)
            bar.update(len(part))
    rows, counts = decide.rows, decide.rows.counts
    rows.write(settings.out, "triples" if settings.negatives else "pairs", "dropped")
    ranks = {str(k): counts.pop(f"rank {k}", 0) for k in RANK_CUTOFFS}
    details = {"rows read": len(triples), "documents": len(miner.corpus), "ranks": ranks, **rows.details()}
    return Counts(rows.number("triples", "pairs"), details=details)


class _Filter:
    """Searches for the queries of some rows and decides about each row.

    Args:
        miner: Miner with numbered queries and documents, and all positives of each query.
        retriever: The retriever.
        rules: Rules for the choice of negatives.
        leaks: Near-duplicates of queries of a test.
    """

    def __init__(self, miner: Miner, retriever: Retriever, rules: Rules, leaks: Container[str]) -> None:
        from mar_st.mining.rules import Picker  # lazy: torch

        self.miner, self.retriever, self.rules, self.leaks = miner, retriever, rules, leaks
        self.numbers = {question.text: row for row, question in enumerate(miner.questions)}
        self.places = {text: place for place, text in enumerate(miner.corpus)}
        self.picker = Picker(rules, miner.corpus)
        self.rows = Rows()
        retriever.prepare([question.text for question in miner.questions], miner.corpus)

    def __call__(self, triples: list[Triple]) -> None:
        """Search for some rows and add them to `rows`."""
        numbers = [self.numbers[triple.query] for triple in triples]
        questions = [self.miner.questions[number] for number in numbers]
        # Known positives and the query itself take no ranks, so look that much further.
        k = self.rules.top + max(len(question.known) for question in questions) + 1
        retrieved = self.retriever.search(numbers, k)
        for triple, question, places in zip(triples, questions, retrieved.documents, strict=True):
            self._decide(triple, question, places[places >= 0].tolist())

    def _decide(self, triple: Triple, question: MinedQuery, ranked: list[int]) -> None:
        kept: dict[str, int] = {}
        counts = self.rows.counts
        for text in triple.positives:
            counts["pairs read"] += 1
            rank = question.rank_of(self.places[text], ranked)
            if rank is not None and rank > self.rules.top:
                rank = None  # the lists of a search are of one length, which depends on the other rows
            leaks = triple.query in self.leaks
            if not leaks:
                counts.update(f"rank {k}" for k in RANK_CUTOFFS if rank is not None and rank <= k)
            if leaks or rank is None or rank > (self.rules.consistent or 0):
                reason = TEST_QUERY if leaks else NOT_FOUND if rank is None else BEYOND_DEPTH
                found = None if leaks else rank
                self.rows.drop({"query": triple.query, "positive": text, "rank": found}, reason)
            else:
                kept[text] = rank
        if not kept:
            return
        negatives = self._negatives(triple, question, ranked)
        counts["pairs kept"] += len(kept)
        counts["negatives"] += len(negatives)
        row: dict[str, Any] = {"query": triple.query, "positives": list(kept)}
        row |= {"negatives": negatives} if negatives else {}
        row |= {name: value for name in ("instruction", "source") if (value := getattr(triple, name))}
        self.rows.add("triples" if negatives else "pairs", row | {"ranks": list(kept.values())})

    def _negatives(self, triple: Triple, question: MinedQuery, ranked: list[int]) -> list[str]:
        """Return the negatives of the row, then the mined ones."""
        known = {self.miner.corpus[place] for place in question.known}
        negatives = [text for text in triple.negatives if text not in known]
        if self.rules.num_negatives:
            picked = self.picker.pick(question, [ranked], {}, Counter())
            negatives += [self.miner.corpus[place] for place in picked.mined]
        return list(dict.fromkeys(negatives))


ROUND_TRIP = Step("round-trip", RoundTripSettings, round_trip, "triples", trains=True)
