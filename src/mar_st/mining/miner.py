"""Mining: search, filter, choose."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

from mar_st.data.corpus import read_texts
from mar_st.data.sequences import Texts, Triple, Triples, numbered
from mar_st.data.training import data_digest, read_source
from mar_st.errors import MarError
from mar_st.files import finished_folder, finished_record, write_json, write_text
from mar_st.mining.retrievers import BM25, CrossScorer, Dense, Retriever, Scorer
from mar_st.mining.rules import REASONS, Filters, MinedQuery, MineSettings, Picked, Picker, Rules
from mar_st.options import validated

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


#: Queries that are searched at once.
BLOCK_QUERIES = 512

TRIPLES_FILE, MANIFEST = "triples.jsonl", "manifest.json"


@dataclass(frozen=True)
class Mined:
    """Result of mining.

    Attributes:
        triples: The given triples, in their order, with their new negatives; those without a consistent
            positive are left out.
        counts: Numbers of triples, queries and documents; of those that the consistency filter left out; of
            negatives that were mined, filled up and labelled; and of queries with too few.
        candidates: Numbers of candidates, of dropped candidates by reason, and of hard negatives (`mined`).
    """

    triples: list[Triple]
    counts: dict[str, int]
    candidates: dict[str, int]


def mine(
    retrievers: Sequence[Retriever],
    triples: Sequence[Triple],
    corpus: Sequence[str] | None = None,
    **options: Any,
) -> Mined:
    """Return the hard negatives for triples.

    All triples of one query are treated together: a positive of one of them is never a negative of
    another, and they get the same mined negatives. A text that names the query as one of *its* positives is a
    positive of it too (paraphrases go both ways).

    Args:
        retrievers: Retrievers that find the candidates.
        triples: The data.
        corpus: Documents to search; default the positives and negatives of the data. Positives are added.
        **options: Other arguments of `Miner`.

    Raises:
        MarError: Retrievers or triples are missing, or a model scores by neither cosine nor dot product.
    """
    return Miner(retrievers, triples, corpus, **options).run()


class Miner:
    """One call of `mine`.

    Args:
        retrievers: See `mine`.
        triples: See `mine`.
        corpus: See `mine`.
        rules: Rules that filter and choose candidates.
        scorer: Computes the scores that margins apply to; default the first retriever.
        symmetric: Queries are documents as well (paraphrases).
        instructed: Search for each query after the instruction of its first triple, as in training. Rules
            compare the bare query.

    Attributes:
        questions: The distinct queries.
        corpus: The distinct documents.
    """

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
            raise MarError(f"Mining needs a retriever and triples; got {len(retrievers)} and {len(triples)}.")
        self.retrievers, self.triples, self.rules = list(retrievers), triples, rules or Rules()
        self.scorer: Scorer = scorer or retrievers[0]
        self.symmetric, self.instructed = symmetric, instructed
        self.corpus = Texts([])
        self.questions: list[MinedQuery] = []
        self._instructions: list[str] = []
        self._number(corpus)

    def run(self) -> Mined:
        """Mine; see `mine`."""
        queries = [question.text for question in self.questions]
        if self._instructions:
            queries = [before + text for before, text in zip(self._instructions, queries, strict=True)]
        for part in dict.fromkeys([*self.retrievers, self.scorer]):
            part.prepare(queries, self.corpus)
        picked: list[Picked] = []
        consistent: list[tuple[int, ...]] = []
        dropped: Counter[str] = Counter()
        starts = range(0, len(queries), BLOCK_QUERIES)
        for start in tqdm(starts, desc="hard negatives", unit="searches", disable=None):
            rows = range(start, min(start + BLOCK_QUERIES, len(queries)))
            for one, positives in self._block(rows, dropped):
                picked.append(one)
                consistent.append(positives)
        return self._result(picked, consistent, dropped)

    def _number(self, corpus: Sequence[str] | None) -> None:
        """Number the documents, and collect the known data of every query."""
        table = Triples.of(self.triples)
        positives = table.documents.select(np.flatnonzero(table.is_positive))
        queries, (of_triple, as_query) = numbered(table.queries, positives)
        query_count = int(of_triple.max()) + 1  # the first texts; the others are positives alone
        queries = queries.select(np.arange(query_count))
        if self.instructed and table.instructed:
            firsts = np.unique(of_triple, return_index=True)[1]
            self._instructions = list(table.instructions.select(firsts))
        searched: list[Sequence[str]] = [table.documents] if corpus is None else [corpus, positives]
        if self.symmetric:
            searched.append(queries)
        texts, places = numbered(*searched, table.documents, queries)
        size = max(int(numbers.max()) for numbers in places[: len(searched)] if len(numbers)) + 1
        self.corpus = texts.select(np.arange(size))
        own = np.where(places[-1] < size, places[-1], -1).tolist()
        own_positives: list[dict[int, None]] = [{} for _ in range(query_count)]
        known: list[set[int]] = [set() for _ in range(query_count)]
        labelled: list[set[int]] = [set() for _ in range(query_count)]
        documents, asked = places[-2], iter(as_query.tolist())
        rows = zip(documents.tolist(), table.owners.tolist(), table.is_positive.tolist(), strict=True)
        for document, row, is_positive in rows:
            query = int(of_triple[row])
            if is_positive:
                own_positives[query][document] = None
                known[query].add(document)
                other = next(asked)
                if own[query] >= 0 and other < query_count:  # the query answers its positive, too
                    known[other].add(own[query])
            elif document < size:
                labelled[query].add(document)
        self.questions = [
            MinedQuery(text, tuple(answers), frozenset(answering), place, frozenset(others - answering))
            for text, answers, answering, place, others in zip(
                queries, own_positives, known, own, labelled, strict=True
            )
        ]

    def _block(self, rows: range, dropped: Counter[str]) -> list[tuple[Picked, tuple[int, ...]]]:
        """Search and choose for some queries; return the choice and the consistent positives of each."""
        questions = [self.questions[row] for row in rows]
        # Known positives and the query itself have no ranks, so search for as many more documents.
        k = self.rules.range_max + max(len(question.known) for question in questions) + 1
        found = [retriever.search(rows, k) for retriever in self.retrievers]
        lists = [
            [[int(d) for d in of_query[row] if d >= 0] for of_query in found] for row in range(len(rows))
        ]
        if self.rules.consistent is not None:
            questions = [
                replace(
                    question,
                    positives=tuple(
                        p
                        for p in question.positives
                        if (question.rank_of(p, own[0]) or k) <= self.rules.consistent
                    ),
                )
                for question, own in zip(questions, lists, strict=True)
            ]
        scores = self._scores(rows, questions, lists)
        picker = Picker(self.rules, self.corpus)
        result = []
        for question, own, known in zip(questions, lists, scores, strict=True):
            picked = Picked([])
            if self.rules.num_negatives and question.positives:
                picked = picker.pick(question, own, known, dropped)
            result.append((picked, question.positives))
        return result

    def _scores(
        self, rows: range, questions: list[MinedQuery], lists: list[list[list[int]]]
    ) -> list[dict[int, float]]:
        """Return the scores of each query's candidates and positives; none if no rule needs them."""
        if self.rules.relative_margin is None or not self.rules.num_negatives:
            return [{} for _ in questions]
        needed = [
            np.array(sorted({*question.positives, *(d for ranked in own for d in ranked)}), dtype=np.int64)
            for question, own in zip(questions, lists, strict=True)
        ]
        scores = self.scorer.score(rows, needed)
        return [dict(zip(d.tolist(), s.tolist(), strict=True)) for d, s in zip(needed, scores, strict=True)]

    def _result(
        self, picked: list[Picked], consistent: list[tuple[int, ...]], dropped: Counter[str]
    ) -> Mined:
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
            known = {self.corpus[document] for document in self.questions[number].known}
            labelled = [text for text in triple.negatives if text not in known]
            mined = [self.corpus[document] for document in (*picked[number].mined, *picked[number].filled)]
            negatives = tuple(dict.fromkeys([*labelled, *mined]))
            counts["labelled"] += len(labelled)
            counts["empty"] += not negatives
            triples.append(replace(triple, positives=positives, negatives=negatives))
        numbers = [len(one.mined) for one, positives in zip(picked, consistent, strict=True) if positives]
        few = [number for number in numbers if number < self.rules.num_negatives]
        dropped["mined"] = sum(len(one.mined) for one in picked)
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
            {name: dropped[name] for name in ("candidates", *REASONS, "mined")},
        )


def mine_to(settings: MineSettings, say: Callable[[str], None] = print) -> dict[str, Any]:
    """Mine hard negatives for training data and write them; finished work with the same settings is kept.

    Args:
        settings: The data, the models and the rules; the result is a folder with `triples.jsonl` and
            `manifest.json`.
        say: Receives one line per phase.

    Returns:
        The manifest: settings, counts, dropped candidates by filter, sha256 of the triples.

    Raises:
        MarError: Data, a corpus or a model is missing, or the folder holds something else.
    """
    from mar_st.recipes.schema import Data  # lazy: a room above

    values = {
        "name": "data", "path": settings.data, "limit": settings.limit,
        "where": {column: [value] for column, value in settings.where.items()},
        "columns": settings.columns, "symmetric": settings.symmetric,
        "prompt": "", "instruction": "{instruction}",
    }  # fmt: skip
    rules = Rules(**{name: getattr(settings, name) for name in Filters.model_fields})
    source = read_source(validated(Data, values, "the data"), rules.seed)
    say(f"data: {source.summary()}")
    corpus = None if settings.corpus is None else read_texts(settings.corpus, table="corpus")
    miner = Miner(
        [_retriever(name, settings) for name in dict.fromkeys(settings.models)],
        source.triples,
        corpus,
        rules=rules,
        scorer=None if settings.teacher is None else _scorer(settings.teacher, settings),
        symmetric=settings.symmetric,
    )
    recorded = settings.model_dump(mode="json", exclude={"out", "data", "corpus"})
    recorded |= {
        "data": data_digest(source.entry),
        "corpus": corpus and hashlib.sha256("\0".join(corpus).encode()).hexdigest(),
        "models": [retriever.identity() for retriever in miner.retrievers],
        "scorer": miner.scorer.identity(),
    }
    recorded = json.loads(json.dumps(recorded))
    out = settings.out
    manifest = finished_record(out, MANIFEST, "settings", recorded)
    if manifest is not None:
        say(f"{out}: finished before, kept")
        return manifest
    say(f"mining: {len(miner.questions)} queries in {len(miner.corpus)} documents")
    mined = miner.run()
    with finished_folder(out) as part:
        lines = (json.dumps(_row(triple), ensure_ascii=False) + "\n" for triple in mined.triples)
        write_text(part / TRIPLES_FILE, "".join(lines))
        manifest = {"settings": recorded, "counts": mined.counts, "candidates": mined.candidates}
        write_json(part / MANIFEST, manifest)
    return manifest


def _retriever(name: str, settings: MineSettings) -> Retriever:
    import torch  # lazy: torch

    from mar_st.teachers.store import store_root  # lazy: sentence_transformers

    kind, _, tokens = name.partition(":")
    if kind == "bm25":
        return BM25(tokens or "char-bigram")
    return Dense.open(
        name,
        store_root(settings.out),
        prompt=settings.prompt,
        symmetric=settings.symmetric,
        autocast=torch.cuda.is_available(),
    )


def _scorer(name: str, settings: MineSettings) -> Scorer:
    if name.startswith("cross:"):
        return CrossScorer(name.removeprefix("cross:"))
    return _retriever(name, settings)


def _row(triple: Triple) -> dict[str, Any]:
    row = {name: getattr(triple, name) for name in ("query", "positives", "negatives")}
    return row | {name: text for name in ("instruction", "source") if (text := getattr(triple, name))}
