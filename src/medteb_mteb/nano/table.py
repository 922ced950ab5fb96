"""The 18 published splits of NanoCMTEB and NanoMedical: where they come from, their sizes and scores.

The figures are those of the task cards of HAKARI-Bench (github.com/hakari-bench/hakari-bench, MIT licence,
commit 217c872), which `published.json` repeats.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["BM25", "DENSE", "HYBRID", "NanoSet", "NanoSplit", "PublishedList", "published_sets"]

#: Names of the published candidate lists.
BM25 = "bm25"
DENSE = "harrier_oss_v1_270m"
HYBRID = "reranking_hybrid"


@dataclass(frozen=True)
class PublishedList:
    """Scores of a published candidate list, and how long its rows are.

    Attributes:
        ndcg_at_10: Mean nDCG@10, binary.
        hit_at_10: Share of queries with a positive among the first 10.
        recall_micro_at_100: Positives among the first 100 over all positives of all queries. A safeguard, at
            rank 101, does not count.
        shortest: Candidates of the shortest row.
        longest: Candidates of the longest row.
        mean_length: Mean number of candidates.
    """

    ndcg_at_10: float
    hit_at_10: float
    recall_micro_at_100: float
    shortest: int
    longest: int
    mean_length: float


@dataclass(frozen=True)
class NanoSplit:
    """A published split.

    Attributes:
        set: Name of the set, such as `NanoCMTEB`.
        name: Name of the split.
        stem: The split's part in the names of tasks.
        task: mteb's task on the same source.
        language: Language of the queries, as named by mteb.
        language_as_published: Language on the card; `multilingual` if the source names none.
        source: Hub name of the data set that was sampled; None if the card does not state it.
        source_revision: Revision of that data set; None if the card does not state it.
        source_split: Split of that data set; None if the card does not state it.
        queries: Number of queries.
        documents: Number of documents.
        positives: Number of positive pairs.
        most_positives: Maximum number of positives of a query.
        queries_with_several: Number of queries with more than one positive.
        query_mean_chars: Mean length of a query in characters.
        document_mean_chars: Mean length of a document in characters.
        safeguards: Number of queries whose list ends with a safeguard.
        lists: Scores of the candidate lists by name.
        examples: Some pairs of a query id and the id of a positive document.
    """

    set: str
    name: str
    stem: str
    task: str
    language: str
    language_as_published: str
    source: str | None
    source_revision: str | None
    source_split: str | None
    queries: int
    documents: int
    positives: int
    most_positives: int
    queries_with_several: int
    query_mean_chars: float
    document_mean_chars: float
    safeguards: int
    lists: Mapping[str, PublishedList]
    examples: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class NanoSet:
    """A published set.

    Attributes:
        name: Name of the set, and of the folder of a local copy.
        hub: Hub name of the data set. Its sources state no revision.
        splits: Its splits by name.
    """

    name: str
    hub: str
    splits: Mapping[str, NanoSplit]


@lru_cache(maxsize=1)
def published_sets() -> Mapping[str, NanoSet]:
    """Return NanoCMTEB and NanoMedical by name."""
    text = files("medteb_mteb.nano").joinpath("published.json").read_text(encoding="utf-8")
    content: dict[str, dict[str, Any]] = json.loads(text)
    return {
        name: NanoSet(
            name,
            one["hub"],
            {split: _split(name, split, dict(row)) for split, row in one["splits"].items()},
        )
        for name, one in content.items()
    }


def _split(of: str, name: str, row: dict[str, Any]) -> NanoSplit:
    lists = {key: PublishedList(**scores) for key, scores in row.pop("lists").items()}
    examples = tuple((query, document) for query, document in row.pop("examples"))
    return NanoSplit(set=of, name=name, lists=lists, examples=examples, **row)
