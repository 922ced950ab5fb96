"""Mining: search, filter, choose; block after block of queries, so that a killed run resumes."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

from mar_st.data import Texts, Triples, numbered
from mar_st.mining.blocks import BlockResult, claim, read_block, score_sums, write_block
from mar_st.mining.rules import MinedQuery, MiningError, Picked, Picker, Rules

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from mar_st.data import Triple
    from mar_st.mining.retrievers import Retriever, Scorer

#: Queries that are searched at once; a killed run loses at most the results of these.
BLOCK_QUERIES = 512

#: Version of mining; raised by every change that makes the same settings give other negatives.
MINING_VERSION = 1


@dataclass(frozen=True)
class Mined:
    """Result of mining.

    Attributes:
        triples: The given triples, in their order, with their new negatives; those without a consistent
            positive are left out.
        counts: Numbers of triples, queries and documents; of those that the consistency filter left out; of
            negatives that were mined, filled up and labelled; and of queries with too few.
        candidates: Numbers of candidates, of dropped candidates by reason, and of hard negatives (`mined`).
        scores: Mean score of positives and mined negatives, if scores were used.
    """

    triples: list[Triple]
    counts: dict[str, int]
    candidates: dict[str, int]
    scores: dict[str, float] = field(default_factory=dict)


@dataclass
class _Known:
    """Documents that are known of a query, by number, while the triples are read."""

    positives: dict[int, None] = field(default_factory=dict)
    known: set[int] = field(default_factory=set)
    labelled: set[int] = field(default_factory=set)


def mine(
    retrievers: Sequence[Retriever],
    triples: Sequence[Triple],
    corpus: Sequence[str] | None = None,
    *,
    rules: Rules | None = None,
    scorer: Scorer | None = None,
    symmetric: bool = False,
    instructed: bool = False,
    work: Path | None = None,
    show_progress: bool = True,
) -> Mined:
    """Return the hard negatives for triples.

    All triples of one query are treated together: a positive of one of them is never a negative of
    another, and they get the same mined negatives. A text that names the query as one of *its* positives is a
    positive of it too (paraphrases go both ways).

    Args:
        retrievers: Retrievers that find the candidates.
        triples: The data.
        corpus: Documents to search; default the positives and negatives of the data. Positives are added.
        rules: Rules that filter and choose candidates.
        scorer: Computes the scores that margins apply to; default the first retriever.
        symmetric: Queries are documents as well (paraphrases).
        instructed: Search for each query after the instruction of its first triple, as in training. Rules
            compare the bare query.
        work: Folder for finished blocks, from which a killed call resumes. Default: none is kept.
        show_progress: Show a progress bar.

    Raises:
        MiningError: Retrievers or triples are missing, or a model scores by neither cosine nor dot product.
    """
    miner = Miner(
        retrievers, triples, corpus, rules=rules, scorer=scorer, symmetric=symmetric, instructed=instructed
    )
    return miner.run(work, show_progress=show_progress)


class Miner:
    """One call of `mine`; the arguments are the same."""

    def __init__(
        self,
        retrievers: Sequence[Retriever],
        triples: Sequence[Triple],
        corpus: Sequence[str] | None = None,
        *,
        rules: Rules | None = None,
        scorer: Scorer | None = None,
        symmetric: bool = False,
        instructed: bool = False,
    ) -> None:
        if not retrievers or not triples:
            raise MiningError(
                f"Mining needs a retriever and triples; got {len(retrievers)} and {len(triples)}."
            )
        self.retrievers, self.triples, self.rules = list(retrievers), triples, rules or Rules()
        self.scorer: Scorer = scorer or retrievers[0]
        self.symmetric, self.instructed = symmetric, instructed
        self.corpus = Texts([])
        self.questions: list[MinedQuery] = []
        #: Instruction of each query; empty if none is searched for.
        self.instructions: list[str] = []
        self._number(corpus)

    def run(self, work: Path | None = None, *, show_progress: bool = True) -> Mined:
        """Mine; see `mine`."""
        if work is not None:
            claim(work, self.identity())
        blocks = []
        prepared = False
        starts = range(0, len(self.questions), BLOCK_QUERIES)
        with tqdm(
            total=len(self.questions), desc="hard negatives", unit="queries",
            disable=None if show_progress else True,
        ) as bar:  # fmt: skip
            for start in starts:
                rows = range(start, min(start + BLOCK_QUERIES, len(self.questions)))
                block = read_block(work, start)
                if block is None:
                    if not prepared:
                        self._prepare()
                        prepared = True
                    block = self._block(rows)
                    write_block(work, start, block)
                blocks.append(block)
                bar.update(len(rows))
        return self._result(blocks)

    def _number(self, corpus: Sequence[str] | None) -> None:
        """Number the documents, and collect the known data of every query."""
        table = Triples.of(self.triples)
        is_positive = np.zeros(len(table.documents), dtype=bool)
        starts = (
            np.cumsum(table.positives.astype(np.int64) + table.negatives) - table.positives - table.negatives
        )
        for place in range(int(table.positives.max())):
            is_positive[(starts + place)[table.positives > place]] = True
        positives = table.documents.select(np.flatnonzero(is_positive))
        queries, (of_triple, as_query) = numbered(table.queries, positives)
        query_count = int(of_triple.max()) + 1  # the first texts; the others are positives alone
        queries = queries.select(np.arange(query_count))
        if self.instructed and table.instructed:
            firsts = np.unique(of_triple, return_index=True)[1]
            self.instructions = list(table.instructions.select(firsts))
        searched: list[Sequence[str]] = [table.documents] if corpus is None else [corpus, positives]
        if self.symmetric:
            searched.append(queries)
        texts, places = numbered(*searched, table.documents, queries)
        size = max(int(numbers.max()) for numbers in places[: len(searched)] if len(numbers)) + 1
        self.corpus = texts.select(np.arange(size))
        own = np.where(places[-1] < size, places[-1], -1).tolist()
        known = [_Known() for _ in range(query_count)]
        rows = zip(
            of_triple.tolist(),
            _split(places[-2], table.positives + table.negatives),
            table.positives.tolist(),
            _split(as_query, table.positives),
            strict=True,
        )
        for query, documents, number, other_queries in rows:
            known[query].positives.update(dict.fromkeys(documents[:number]))
            known[query].known.update(documents[:number])
            known[query].labelled.update(document for document in documents[number:] if document < size)
            if own[query] >= 0:  # the query is a document, too: a positive of its positives
                for other in other_queries:
                    if other < query_count:
                        known[other].known.add(own[query])
        self.questions = [
            MinedQuery(
                text, tuple(one.positives), frozenset(one.known), place, frozenset(one.labelled - one.known)
            )
            for text, one, place in zip(queries, known, own, strict=True)
        ]

    def identity(self) -> dict[str, Any]:
        """Return everything the blocks depend on."""
        digest = hashlib.sha256()
        for question in self.questions:
            known = [question.text, question.positives, sorted(question.known), sorted(question.labelled)]
            digest.update(json.dumps(known, ensure_ascii=False).encode() + b"\n")
        for text in self.corpus:
            digest.update(text.encode() + b"\0")
        content = {
            "format": MINING_VERSION,
            "block": BLOCK_QUERIES,
            "rules": self.rules.to_json(),
            "retrievers": [retriever.identity() for retriever in self.retrievers],
            "scorer": self.scorer.identity(),
            "data": digest.hexdigest(),
        }
        if self.instructions:
            instructions = json.dumps(self.instructions, ensure_ascii=False).encode()
            content["instructions"] = hashlib.sha256(instructions).hexdigest()
        recorded: dict[str, Any] = json.loads(json.dumps(content))
        return recorded

    def _prepare(self) -> None:
        queries = [question.text for question in self.questions]
        if self.instructions:
            queries = [before + text for before, text in zip(self.instructions, queries, strict=True)]
        for part in dict.fromkeys([*self.retrievers, self.scorer]):
            part.prepare(queries, self.corpus)

    def _block(self, rows: range) -> BlockResult:
        """Search and choose for some queries."""
        questions = [self.questions[row] for row in rows]
        # Known positives and the query itself have no ranks, so search for as many more documents.
        k = self.rules.top + max(len(question.known) for question in questions) + 1
        positives = [np.array(question.positives, dtype=np.int64) for question in questions]
        retrieved = [retriever.search(rows, k, positives) for retriever in self.retrievers]
        lists = [[row[row >= 0].tolist() for row in result.documents] for result in retrieved]
        if self.rules.consistent is not None:
            consistent = [
                tuple(p for p in q.positives if (q.rank_of(p, ranked) or k) <= self.rules.consistent)
                for q, ranked in zip(questions, lists[0], strict=True)
            ]
            questions = [
                replace(question, positives=kept)
                for question, kept in zip(questions, consistent, strict=True)
            ]
        else:
            consistent = [question.positives for question in questions]
        scores = self._scores(rows, questions, retrieved, lists)
        picker = Picker(self.rules, self.corpus)
        dropped: Counter[str] = Counter()
        picked = []
        for place, question in enumerate(questions):
            own = [ranked[place] for ranked in lists]
            if self.rules.num_negatives and question.positives:
                picked.append(picker.pick(question, own, scores[place], dropped))
            else:
                picked.append(Picked.none())
        return BlockResult(picked, consistent, dropped, score_sums(questions, picked, scores))

    def _scores(
        self, rows: range, questions: list[MinedQuery], retrieved: Sequence[Any], lists: list[list[list[int]]]
    ) -> list[dict[int, float]]:
        """Return the scorer's scores of each query's candidates and positives; none if no rule needs them."""
        if not self.rules.uses_scores or not self.rules.num_negatives:
            return [{} for _ in questions]
        scores: list[dict[int, float]] = []
        scorer_index = next((n for n, r in enumerate(self.retrievers) if r is self.scorer), None)
        for place, row in enumerate(rows):
            known: dict[int, float] = {}
            if scorer_index is not None:
                known = dict(
                    zip(
                        retrieved[scorer_index].documents[place].tolist(),
                        retrieved[scorer_index].scores[place].tolist(),
                        strict=True,
                    )
                )
                known.pop(-1, None)
                all_positives = self.questions[row].positives
                known |= dict(zip(all_positives, retrieved[scorer_index].also[place].tolist(), strict=True))
            scores.append(known)
        unscored = []
        for place, question in enumerate(questions):
            needed = {document for ranked in lists for document in ranked[place]} | set(question.positives)
            unscored.append(np.array(sorted(needed - scores[place].keys()), dtype=np.int64))
        if any(len(documents) for documents in unscored):
            for known, documents, values in zip(
                scores, unscored, self.scorer.score(rows, unscored), strict=True
            ):
                known |= dict(zip(documents.tolist(), values.tolist(), strict=True))
        return scores

    def _result(self, blocks: list[BlockResult]) -> Mined:
        picked = [one for block in blocks for one in block.picked]
        consistent = [one for block in blocks for one in block.consistent]
        of_query = {question.text: number for number, question in enumerate(self.questions)}
        counts: Counter[str] = Counter()
        triples = []
        for triple in self.triples:
            number = of_query[triple.query]
            texts = {self.corpus[document] for document in consistent[number]}
            positives = tuple(text for text in triple.positives if text in texts)
            counts["inconsistent positives"] += len(triple.positives) - len(positives)
            if not positives:
                counts["triples without a consistent positive"] += 1
                continue
            triples.append(self._triple(triple, positives, number, picked[number], counts))
        mined = [len(one.mined) for one, positives in zip(picked, consistent, strict=True) if positives]
        few = [number for number in mined if number < self.rules.num_negatives]
        dropped = sum((block.dropped for block in blocks), Counter())
        dropped["mined"] = sum(len(one.mined) for one in picked)
        sums = Counter[str]()
        for block in blocks:
            sums.update(block.sums)
        return Mined(
            triples,
            {
                "triples read": len(self.triples),
                "triples written": len(triples),
                "queries": len(self.questions),
                "documents": len(self.corpus),
                "inconsistent positives": counts["inconsistent positives"],
                "triples without a consistent positive": counts["triples without a consistent positive"],
                "labelled negatives kept": counts["labelled"],
                "queries with fewer mined negatives than asked": len(few),
                "queries without a mined negative": few.count(0),
                "random negatives": sum(len(one.filled) for one in picked),
                "triples without a negative": counts["empty"],
            },
            dict(dropped),
            {
                f"mean of {name}": sums[name] / sums[f"{name} (number)"]
                for name in ("positives", "mined negatives")
                if sums[f"{name} (number)"]
            },
        )

    def _triple(
        self, triple: Triple, positives: tuple[str, ...], number: int, picked: Picked, counts: Counter[str]
    ) -> Triple:
        known = {self.corpus[document] for document in self.questions[number].known}
        labelled: list[str] = []
        if self.rules.keep_labelled:
            labelled = [text for text in triple.negatives if text not in known]
        counts["labelled"] += len(labelled)
        mined = [self.corpus[document] for document in (*picked.mined, *picked.filled)]
        negatives = tuple(dict.fromkeys([*labelled, *mined]))
        counts["empty"] += not negatives
        return replace(triple, positives=positives, negatives=negatives)


def _split(values: np.ndarray, sizes: np.ndarray) -> Iterator[list[int]]:
    """Yield the consecutive parts of an array, as lists."""
    start = 0
    for end in np.cumsum(sizes, dtype=np.int64).tolist():
        yield values[start:end].tolist()
        start = end
