"""Round-trip consistency: a query is kept if a retriever finds the document that it was written for.

Source: BMRetriever (arXiv 2404.18443, section on synthetic data): a synthetic query stays only if its passage
is among the three best of E5-base over the set's own corpus; its hard negative is a random one of the best
100, positives excluded.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from mar_st.options import Argument
from medteb_mteb.curation.files.read import read_texts
from medteb_mteb.curation.pooling import RetrieverSettings, open_retriever
from medteb_mteb.curation.step import SEED, Counts, Input, Model, Step
from medteb_mteb.curation.training.rows import TEST_QUERY, AgainstSettings, Rows

#: Depth of the search, for negatives and reported ranks, as published.
TOP = 100


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
    """Keep the pairs whose document a retriever finds for their query (rule `consistent` of `mar mine`).

    `triples.jsonl` holds rows with negatives and `pairs.jsonl` rows without; `dropped.jsonl` the dropped
    pairs. Ranks count over the documents except other positives of the query and the query itself.
    """
    from mar_st.data.training import read_source  # lazy: transformers
    from mar_st.recipes.schema import Data  # lazy: pydantic

    # A prompt would conflict with the rows' instructions, and a template would change them.
    entry = Data(name="pairs", path=str(settings.pairs), prompt="", instruction="{instruction}")
    triples = list(read_source(entry, 0).triples)
    corpus = None if settings.documents is None else [text.full for text in read_texts(settings.documents)]
    leaks = settings.held_out().leaks([triple.query for triple in triples])
    tested = {triples[row].query for row in leaks}
    from mar_st.mining.miner import Miner  # lazy: torch, which is not needed to refuse rows
    from mar_st.mining.rules import Rules  # lazy: torch

    rules = Rules(
        num_negatives=settings.negatives, range_max=TOP, fill=False, consistent=settings.depth, seed=SEED
    )
    miner = Miner([open_retriever(settings.retriever, settings)], triples, corpus, rules=rules)
    found = miner.run().triples
    kept = {(one.query, text) for one in found for text in one.positives}
    rows = Rows()
    for one in triples:
        for text in one.positives:
            if one.query in tested or (one.query, text) not in kept:
                reason = TEST_QUERY if one.query in tested else "not-found"
                rows.drop({"query": one.query, "positive": text}, reason)
    for one in found:
        if one.query not in tested:
            row: dict[str, Any] = {"query": one.query, "positives": one.positives}
            row |= {name: value for name in ("instruction", "source") if (value := getattr(one, name))}
            rows.add_example(row, one.negatives)
    rows.write(settings.out, "triples" if settings.negatives else "pairs", "dropped")
    details = {"rows read": len(triples), "documents": len(miner.corpus), **rows.details()}
    return Counts(rows.number("triples", "pairs"), details=details)


ROUND_TRIP = Step("round-trip", RoundTripSettings, round_trip, "triples", trains=True)
