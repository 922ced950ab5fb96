"""Draws queries and documents of a Nano split from a retrieval set, in the published order, not at random.

Queries are the first 200 in source order that have a positive and a text not seen before. Documents are their
positives in the order of the qrels, then the documents judged not relevant (score 0 or less), one query after
the other in turn, then documents in source order, up to 10,000; ids and texts that came before are left out.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from mar_st.text.values import as_id, as_number
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.folders.layout import inspect_folder
from medteb_mteb.folders.problems import Problems
from medteb_mteb.folders.rows import iter_rows
from medteb_mteb.nano.layout import NanoData

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from medteb_mteb.folders.layout import Layout
    from medteb_mteb.folders.rows import Row

__all__ = [
    "DOCUMENT_COUNT",
    "MAX_POSITIVES",
    "QUERY_COUNT",
    "Sampled",
    "SourceRows",
    "read_source",
    "sample",
    "select_queries",
]

QUERY_COUNT = 200
DOCUMENT_COUNT = 10_000
#: Maximum positives of a query; further ones are left out of the qrels, as in the published builder.
MAX_POSITIVES = 100
#: Documents in source order that may fill the corpus, in multiples of its size.
_FILL_FACTOR = 3


@dataclass(frozen=True)
class SourceRows:
    """A retrieval set as sampling needs it: everything in source order.

    Attributes:
        queries: Id and text of each query.
        corpus: Id and text of each document; with a title, the title, a blank line and the text.
        qrels: Query id, document id and score of each judged pair.
        revision: Revision of the data.
        languages: Languages that the card declares.
    """

    queries: Sequence[tuple[str, str]]
    corpus: Sequence[tuple[str, str]]
    qrels: Sequence[tuple[str, str, float]]
    revision: str = ""
    languages: Sequence[str] = ()


@dataclass(frozen=True)
class Sampled:
    """A drawn split.

    Attributes:
        data: The split, without candidate lists.
        left_out: Number of texts and pairs left out, by reason.
    """

    data: NanoData
    left_out: Mapping[str, int]


def read_source(folder: Path | str, split: str = "test") -> SourceRows:
    """Read a retrieval folder in source order. Unlike for scoring, empty or repeated texts are not errors.

    Args:
        folder: Folder in the Hub layout: corpus, queries and qrels.
        split: Split of the qrels.

    Raises:
        FolderError: A table is missing or a line cannot be read.
        BuildError: The folder holds another kind of task, or a row lacks a column.
    """
    layout = inspect_folder(folder, split)
    if "corpus" not in layout.tables:
        raise BuildError(f"{layout.path}: expected a retrieval folder with corpus, queries and qrels.")
    problems = Problems(layout.path)
    source = SourceRows(
        queries=list(_texts(layout, "queries", problems)),
        corpus=list(_texts(layout, "corpus", problems)),
        qrels=list(_pairs(layout, problems)),
        revision=layout.revision(),
        languages=layout.settings.languages,
    )
    problems.raise_if_any()
    return source


def _rows(layout: Layout, table: str, problems: Problems) -> Iterator[Row]:
    for file in layout.tables[table]:
        yield from iter_rows(file, problems)


def _texts(layout: Layout, table: str, problems: Problems) -> Iterator[tuple[str, str]]:
    for row in _rows(layout, table, problems):
        key = as_id(row.values.get("_id", row.values.get("id")))
        if key is None or "text" not in row.values:
            raise BuildError(f"{problems.name(row.file)}:{row.line}: expected the columns _id and text.")
        body, title = _clean(row.values["text"]), _clean(row.values.get("title")) if table == "corpus" else ""
        yield key, f"{title}\n\n{body}" if title and body and title != body else body or title


def _clean(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""


def _pairs(layout: Layout, problems: Problems) -> Iterator[tuple[str, str, float]]:
    # Qrels may exist in two forms; one is enough.
    for row in iter_rows(layout.tables["qrels"][0], problems):
        query, document = as_id(row.values.get("query-id")), as_id(row.values.get("corpus-id"))
        score = as_number(row.values.get("score", 1))
        if query is None or document is None or score is None:
            raise BuildError(
                f"{problems.name(row.file)}:{row.line}: expected the columns query-id, corpus-id and score."
            )
        yield query, document, score


def select_queries(
    queries: Iterable[tuple[str, str]], qrels: Iterable[tuple[str, str, float]], number: int = QUERY_COUNT
) -> dict[str, str]:
    """Return the first queries in source order that have a positive; repeated ids and texts do not count.

    Args:
        queries: Id and text of each query.
        qrels: Query id, document id and score of each judged pair.
        number: Maximum number of queries to select.
    """
    with_positive = {query for query, _, score in qrels if score > 0}
    selected: dict[str, str] = {}
    texts: set[str] = set()
    for key, text in queries:
        if text and key in with_positive and key not in selected and text not in texts:
            selected[key] = text
            texts.add(text)
            if len(selected) == number:
                break
    return selected


def sample(
    source: SourceRows,
    name: str,
    *,
    queries: int = QUERY_COUNT,
    documents: int = DOCUMENT_COUNT,
    most_positives: int = MAX_POSITIVES,
) -> Sampled:
    """Draw a split.

    Args:
        source: The retrieval set.
        name: Name of the split.
        queries: Number of queries to sample.
        documents: Number of documents to sample.
        most_positives: Maximum number of positives of a query.

    Raises:
        BuildError: A number is below 1, or nothing is left.
    """
    for what, number in (("queries", queries), ("documents", documents), ("most_positives", most_positives)):
        if number < 1:
            raise BuildError(f"{what} is at least 1; got {number}.")
    selected = select_queries(source.queries, source.qrels, queries)
    positives = list(dict.fromkeys((q, d) for q, d, score in source.qrels if score > 0 and q in selected))
    corpus, left_out = _select_documents(source, selected, positives, documents)
    qrels: dict[str, list[str]] = {}
    for query, document in positives:
        if document not in corpus:
            left_out["positives without their document"] += 1
        elif len(qrels.setdefault(query, [])) >= most_positives:
            left_out[f"positives beyond {most_positives} of a query"] += 1
        else:
            qrels[query].append(document)
    drawn_queries = {query: text for query, text in selected.items() if qrels.get(query)}
    left_out["queries without a positive in the corpus"] = len(selected) - len(drawn_queries)
    if not drawn_queries:
        raise BuildError(
            "No query has a positive whose document is in the corpus, so there is nothing to draw."
        )
    data = NanoData(
        name,
        corpus,
        drawn_queries,
        {query: document_ids for query, document_ids in qrels.items() if document_ids},
    )
    return Sampled(data, {reason: number for reason, number in left_out.items() if number})


def _select_documents(
    source: SourceRows, selected: Mapping[str, str], positives: Sequence[tuple[str, str]], number: int
) -> tuple[dict[str, str], Counter[str]]:
    first: list[str] = [document for _, document in positives]
    negatives: dict[str, dict[str, None]] = {}
    for query, document, score in source.qrels:
        if score <= 0 and query in selected:
            negatives.setdefault(query, {})[document] = None
    first += _in_turn([list(negatives[query]) for query in sorted(negatives)])
    wanted = set(first)
    texts: dict[str, str] = {}
    for key, text in source.corpus:
        if text and key in wanted:
            texts.setdefault(key, text)
    limit = max(_FILL_FACTOR * number, number + len(wanted))
    fill = islice(((key, text) for key, text in source.corpus if text), limit)
    corpus: dict[str, str] = {}
    seen: set[str] = set()
    left_out: Counter[str] = Counter()
    for key in dict.fromkeys(first):
        if key not in texts:
            left_out["judged documents that the corpus lacks"] += 1
    for key, text in (*((key, texts[key]) for key in first if key in texts), *fill):
        if len(corpus) == number:
            break
        if key in corpus:
            continue
        if text in seen:
            left_out["documents whose text is there already"] += 1
            continue
        corpus[key] = text
        seen.add(text)
    return corpus, left_out


def _in_turn(lists: Sequence[Sequence[str]]) -> list[str]:
    """Return the first of each list, then the second of each, and so on."""
    longest = max(map(len, lists), default=0)
    return [one[place] for place in range(longest) for one in lists if place < len(one)]
