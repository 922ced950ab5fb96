"""Draws a Nano split from a retrieval folder by the protocol of HAKARI-Bench (arXiv 2606.22778).

    python -m tools.nano FOLDER OUT [--split test] [--name NAME] [--model MODEL]

Queries are the first 200 that have a positive; documents are their positives, then those judged not relevant,
in turn, then the first of the source, up to 10,000. BM25 ranks them, and with --model a dense model too; the
hybrid list fuses both, with a positive at rank 101 where the 100 hold none.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import re
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from mar_st.errors import MarError
from mar_st.files import finished, write_text
from mar_st.text.values import as_id, as_number
from mar_st.text.words import BM25Index, segmenter
from medteb_mteb.folders.content import table_rows
from medteb_mteb.folders.layout import Problems, config_names, config_splits, inspect_folder
from medteb_mteb.tasks.nano import BM25, HYBRID, HYBRID_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

QUERIES, DOCUMENTS, MOST_POSITIVES, DEPTH = 200, 10_000, 100, 500
RRF_K, SEED = 100, 20260524  # of the published lists


@dataclass(frozen=True)
class NanoData:
    """One split.

    Attributes:
        split: Name of the split.
        corpus: Texts of the documents by id.
        queries: Texts of the queries by id.
        qrels: Positive documents by query.
        lists: Candidate lists by name: documents by query, best first.
    """

    split: str
    corpus: Mapping[str, str]
    queries: Mapping[str, str]
    qrels: Mapping[str, Sequence[str]]
    lists: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)


def read_source(
    folder: Path, split: str
) -> tuple[dict[str, str], list[tuple[str, str]], list[tuple[str, str, float]]]:
    """Return queries, documents and judged pairs of a retrieval folder in source order."""
    layout = inspect_folder(folder, split)
    problems = Problems(layout.path)
    if not {"queries", "corpus", "qrels"} <= {*layout.tables}:
        raise MarError(f"{folder}: expected a retrieval folder with corpus, queries and qrels.")

    def texts(table: str) -> Iterator[tuple[str, str]]:
        for _, row in table_rows(layout.tables[table], problems, ("text",)):
            key = as_id(row.get("_id", row.get("id")))
            body = str(row["text"] or "").strip()
            title = str(row.get("title") or "").strip() if table == "corpus" else ""
            text = f"{title}\n\n{body}" if title and body and title != body else body or title
            if key is not None and text:
                yield key, text

    queries: dict[str, str] = {}
    for key, text in texts("queries"):
        queries.setdefault(key, text)
    corpus, pairs = list(texts("corpus")), []
    for place, row in table_rows(layout.tables["qrels"], problems, ("query-id", "corpus-id")):
        query, document = as_id(row["query-id"]), as_id(row["corpus-id"])
        score = as_number(row.get("score", 1))
        if query is None or document is None or score is None:
            problems.add(place, "qrels", "expected query-id, corpus-id and score")
        else:
            pairs.append((query, document, score))
    problems.raise_if_any()
    return queries, corpus, pairs


def sample(
    queries: Mapping[str, str],
    corpus: Sequence[tuple[str, str]],
    pairs: Sequence[tuple[str, str, float]],
    name: str,
) -> NanoData:
    """Draw a split, without candidate lists."""
    judged = {query for query, _, score in pairs if score > 0}
    by_text: dict[str, str] = {}
    for query, text in queries.items():
        if query in judged:
            by_text.setdefault(text, query)
    chosen = {query: text for text, query in islice(by_text.items(), QUERIES)}
    positives = list(dict.fromkeys((q, d) for q, d, score in pairs if score > 0 and q in chosen))
    negatives: dict[str, dict[str, None]] = {}
    for query, document, score in pairs:
        if score <= 0 and query in chosen:
            negatives.setdefault(query, {})[document] = None
    rows = [list(negatives[query]) for query in sorted(negatives)]
    in_turn = [row[n] for n in range(max(map(len, rows), default=0)) for row in rows if n < len(row)]
    first = list(dict.fromkeys([*(document for _, document in positives), *in_turn]))
    texts: dict[str, str] = {}
    for key, text in corpus:
        texts.setdefault(key, text)
    most = max(3 * DOCUMENTS, DOCUMENTS + len(first))
    drawn: dict[str, str] = {}
    seen: set[str] = set()
    for key, text in (*((key, texts[key]) for key in first if key in texts), *corpus[:most]):
        if len(drawn) < DOCUMENTS and key not in drawn and text not in seen:
            drawn[key] = text
            seen.add(text)
    qrels: dict[str, list[str]] = {}
    for query, document in positives:
        if document in drawn and len(qrels.get(query, ())) < MOST_POSITIVES:
            qrels.setdefault(query, []).append(document)
    if not qrels:
        raise MarError("No query has a positive whose document is in the corpus: nothing to draw.")
    return NanoData(name, drawn, {q: text for q, text in chosen.items() if q in qrels}, qrels)


def words(text: str, chinese: bool) -> list[str]:
    """Return the words of a text as published: jieba's default mode, else runs of letters and digits."""
    if not chinese:
        return re.findall(r"\b\w+\b", text.lower())
    pieces = (text[start : start + 4000] for start in range(0, len(text), 4000))
    return [word for piece in pieces for word in segmenter().lcut(piece) if word]


def bm25_list(data: NanoData) -> dict[str, list[str]]:
    """Return BM25's best documents by query; equal scores in the order of the digests of the ids."""
    chosen = random.Random(0).sample(list(data.queries.values()), min(10, len(data.queries)))
    chinese = 2 * sum(bool(re.search(r"[㐀-鿿豈-﫿]", text)) for text in chosen) > len(chosen)
    ids = list(data.corpus)
    documents = [words(text, chinese) for text in data.corpus.values()]
    index = BM25Index(documents, k1=1.5, b=0.75, method="robertson")
    order = sorted(range(len(ids)), key=lambda one: hashlib.sha256(ids[one].encode()).digest())
    place = np.argsort(order)
    return {
        query: [ids[one] for one in np.lexsort((place, -index.scores(words(text, chinese))))[:DEPTH]]
        for query, text in data.queries.items()
    }


def dense_list(data: NanoData, model: str) -> dict[str, list[str]]:
    """Return a model's best documents by query."""
    from mar_st.model.mar import open_model  # lazy: torch

    opened, ids = open_model(model), list(data.corpus)
    documents = opened.encode_document(list(data.corpus.values()))
    queries = opened.encode_query(list(data.queries.values()))
    scores = np.asarray(opened.similarity(queries, documents))
    if not np.isfinite(scores).all():
        raise MarError(f"{model} gives vectors that are not finite.")
    best = np.argsort(-scores, axis=1, kind="stable")[:, :DEPTH]
    return {query: [ids[one] for one in row] for query, row in zip(data.queries, best, strict=True)}


def hybrid_list(data: NanoData, lists: Sequence[Mapping[str, Sequence[str]]]) -> dict[str, list[str]]:
    """Fuse lists by reciprocal rank, ties by best rank and then by id, and add the safeguards."""
    fused = {}
    for query, positives in data.qrels.items():
        ranks: dict[str, list[int]] = {}
        for rows in lists:
            for rank, document in enumerate(rows[query], 1):
                ranks.setdefault(document, []).append(rank)
        scored = {key: sum(1 / (RRF_K + rank) for rank in at) for key, at in ranks.items()}
        best = sorted(scored, key=lambda key: (-scored[key], min(ranks[key]), key))[:HYBRID_SIZE]
        if not set(positives).intersection(best):
            draw = random.Random(f"{SEED}\0{data.split}\0{query}\0positive_safeguard")
            best.append(draw.choice(sorted(positives)))
        fused[query] = best
    return fused


def write(data: NanoData, out: Path) -> None:
    """Write a split beside the existing ones, and the card."""
    pairs = [(query, document) for query, documents in data.qrels.items() for document in documents]
    tables: dict[str, dict[str, Sequence[Any]]] = {
        "corpus": {"_id": list(data.corpus), "text": list(data.corpus.values())},
        "queries": {"_id": list(data.queries), "text": list(data.queries.values())},
        "qrels": {"query-id": [q for q, _ in pairs], "corpus-id": [d for _, d in pairs]},
    }
    for name, rows in data.lists.items():
        tables[name] = {"query-id": list(data.queries), "corpus-ids": [rows[query] for query in data.queries]}
    for name, columns in tables.items():
        path = out / name / f"{data.split}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        with finished(path) as part:
            pq.write_table(pa.table(columns), part)
    configs = [
        {
            "config_name": name,
            "data_files": [
                {"split": split, "path": f"{name}/{split}.parquet"} for split in config_splits(out, name)
            ],
        }
        for name in config_names(out)
    ]
    header = yaml.safe_dump({"configs": configs}, sort_keys=False)
    write_text(out / "README.md", f"---\n{header}---\n# {out.name}\n\nThe licences are the sources'.\n")


def build(
    folder: Path, out: Path, split: str = "test", name: str | None = None, model: str | None = None
) -> NanoData:
    """Draw a split, rank its candidates and write it.

    Args:
        folder: Retrieval folder in the Hub layout.
        out: Folder of the Nano set; a split of that name is replaced.
        split: Split of the source's qrels.
        name: Name of the Nano split; default the folder's.
        model: Dense model; without one there is only BM25's list.
    """
    data = sample(*read_source(folder, split), name or folder.resolve().name)
    lists = {BM25: bm25_list(data)}
    if model is not None:
        lists[re.sub(r"\W+", "_", Path(model).name.lower()).strip("_")] = dense_list(data, model)
        lists[HYBRID] = hybrid_list(data, list(lists.values()))
    data = replace(data, lists=lists)
    write(data, out)
    return data


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--split", default="test", help="split of the source's qrels")
    parser.add_argument("--name", help="name of the Nano split; default the folder's")
    parser.add_argument("--model", help="dense model: folder, Hub name, or a model of this project")
    given = vars(parser.parse_args())
    try:
        built = build(**given)
    except MarError as error:
        raise SystemExit(f"error: {error}") from None
    print(f"{built.split}: {len(built.queries)} queries, {len(built.corpus):,} documents, {[*built.lists]}")
