"""Training rows of judged queries: a triple, a pair without negatives, or none, with the reason."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from medteb_mteb.curation.labels.grades import Label

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from medteb_mteb.curation.training.answer import Lists
    from medteb_mteb.curation.training.plan import Batch, QueryCandidates, TwoLists

__all__ = [
    "NO_ANSWER",
    "NO_CANDIDATES",
    "NO_POSITIVE",
    "REPEATED_QUERY",
    "TEST_QUERY",
    "ShardRows",
    "TripleWriter",
]

#: Why a query makes no triple.
REPEATED_QUERY, TEST_QUERY, NO_CANDIDATES = "repeated", "test-query", "no-candidates"
NO_ANSWER, NO_POSITIVE = "no-answer", "no-positive"


@dataclass
class ShardRows:
    """Rows of a shard's files, and their counts.

    Attributes:
        files: Rows by file name: `triples`, `pairs`, `labels`, `dropped`, `failed`.
        counts: Counts by name; reasons as `dropped:REASON` (queries) and `failed:REASON` (prompts).
    """

    files: dict[str, list[dict[str, Any]]] = field(
        default_factory=lambda: {name: [] for name in ("triples", "pairs", "labels", "dropped", "failed")}
    )
    counts: Counter[str] = field(default_factory=Counter)

    def drop(self, query: str, text: str, reason: str, detail: str = "") -> None:
        """Leave a query out."""
        row = {"query-id": query, "query": text, "reason": reason}
        self.files["dropped"].append({**row, "detail": detail} if detail else row)
        self.counts[f"dropped:{reason}"] += 1


class TripleWriter:
    """Makes rows from answers.

    Args:
        texts: Text of each document.
        how: Settings.
    """

    def __init__(self, texts: Mapping[str, str], how: TwoLists) -> None:
        self.texts, self.how = texts, how

    def add(
        self,
        rows: ShardRows,
        candidates: QueryCandidates,
        batches: Iterable[Batch],
        answers: Mapping[str, Lists],
        failed: Mapping[str, str],
    ) -> None:
        """Add a query that was judged.

        Args:
            rows: Receives the rows.
            candidates: The query and its documents.
            batches: Its prompts.
            answers: Parsed answer by key of the prompt.
            failed: Reason by key of a prompt without a valid answer.
        """
        relevance: dict[str, int] = {}
        answered = 0
        for batch in batches:
            rows.counts["prompts"] += 1
            if batch.key in failed:
                names = [name for name in batch.documents if name is not None]
                row = {"query-id": batch.query, "corpus-ids": names, "reason": failed[batch.key]}
                rows.files["failed"].append(row)
                rows.counts[f"failed:{failed[batch.key]}"] += 1
                continue
            lists = answers[batch.key]
            answered += 1
            rows.counts["unlabelled"] += len(lists.missing)
            for value, numbers in ((1, lists.positive), (0, lists.negative)):
                for number in numbers:
                    name = batch.documents[number]
                    if name is not None:
                        relevance[name] = value
        for name in candidates.documents:  # best ranked first
            if name in relevance:
                rows.files["labels"].append(Label(candidates.query, name, relevance[name]).to_json())
        if not any(relevance.values()):
            reason = NO_POSITIVE if answered else NO_ANSWER
            rows.drop(candidates.query, candidates.text, reason)
            return
        self._triple(rows, candidates, relevance)

    def _triple(self, rows: ShardRows, candidates: QueryCandidates, relevance: Mapping[str, int]) -> None:
        positives = [name for name in candidates.documents if relevance.get(name) == 1]
        negatives = [name for name in candidates.documents if relevance.get(name) == 0]
        kept = self._negatives(candidates.query, negatives)
        rows.counts["positives"] += len(positives)
        rows.counts["negatives"] += len(kept)
        rows.counts["negatives beyond the limit"] += len(negatives) - len(kept)
        row = {"query": candidates.text, "positives": [self.texts[name] for name in positives]}
        if kept:
            row["negatives"] = [self.texts[name] for name in kept]
        row |= {"query-id": candidates.query, "positive-ids": positives}
        if kept:
            row["negative-ids"] = kept
        # A stage with hard negatives refuses rows without any.
        name = "triples" if kept else "pairs"
        rows.files[name].append(row)
        rows.counts[name] += 1

    def _negatives(self, query: str, ranked: list[str]) -> list[str]:
        limit = self.how.negatives
        if len(ranked) <= limit or self.how.choose == "top":
            return ranked[:limit]
        drawn = random.Random(f"{self.how.seed}\0{query}").sample(range(len(ranked)), limit)
        return [ranked[place] for place in sorted(drawn)]
