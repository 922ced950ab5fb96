"""Pools: for each query, the documents that several retrievers find, with their rank by each retriever.

Lists are merged by reciprocal rank fusion. The papers do not say how they merge their three lists into one
of 500. Vectors of embedding models are kept in `$MAR_STORE`, else in `teacher-store` beside the step.

Source of RRF: G. V. Cormack, C. L. A. Clarke, S. Buettcher, SIGIR 2009.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field
from tqdm.auto import tqdm

from mar_st.errors import MarError
from mar_st.files import sha256
from mar_st.model.names import model_source
from mar_st.options import Argument, Switch
from medteb_mteb.curation.files.layout import write_rows
from medteb_mteb.curation.files.read import read_texts
from medteb_mteb.curation.step import Counts, Estimate, Input, Model, Runtime, Step, StepSettings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mar_st.mining.retrievers import Retriever
    from medteb_mteb.curation.files.records import Text

#: Added to every rank before it is inverted, as published.
RRF_K = 60
#: Queries that are searched for at once.
QUERIES_PER_SEARCH = 1000


class RetrieverSettings(StepSettings):
    """Options of a step that searches with embedding models."""

    batch_size: Annotated[int, Runtime()] = Field(64, ge=1, description="Texts per forward pass.")


class PoolSettings(RetrieverSettings):
    """Options of `medteb pool`."""

    queries: Annotated[Path, Argument(), Input("texts")] = Field(description="Queries.")
    documents: Annotated[Path, Argument(), Input("texts")] = Field(description="Documents.")
    retrievers: Annotated[tuple[str, ...], Model(), Switch("-r", "--retriever")] = Field(
        min_length=1, description="bm25, bm25:jieba, an embedding model, or a TREC run; may be repeated."
    )
    size: int = Field(500, ge=1, description="Maximum number of documents of a pool.")
    depth: int = Field(500, ge=1, description="Number of documents taken from each retriever.")

    def check(self) -> None:
        """Refuse models that do not exist before anything is read."""
        from mar_st.data.trec import is_run  # lazy: transformers

        for name in self.retrievers:
            if not is_run(name) and not name.startswith("bm25"):
                model_source(name)


def merge(runs: Mapping[str, Sequence[str]], *, size: int, depth: int) -> dict[str, dict[str, int]]:
    """Merge rankings by the sum of 1 / (60 + rank); ties: by best rank, then by the retrievers' order.

    Args:
        runs: Retriever -> documents, best first.
        size: Maximum number of documents of the result.
        depth: Number of documents taken from each ranking.

    Returns:
        For each document, best first, the ranks (from 1) by the retrievers that found it.
    """
    ranks: dict[str, dict[str, int]] = {}
    for system, documents in runs.items():
        for rank, document in enumerate(documents[:depth], start=1):
            ranks.setdefault(document, {})[system] = rank

    def order(document: str) -> tuple[float, int]:
        own_ranks = ranks[document].values()
        return -sum(1 / (RRF_K + rank) for rank in own_ranks), min(own_ranks)

    return {document: ranks[document] for document in sorted(ranks, key=order)[:size]}


def open_retriever(name: str, settings: RetrieverSettings) -> Retriever:
    """Open a retriever by name: `bm25`, `bm25:jieba`, `mar-mini`, a model folder, or a Hub name.

    Args:
        name: Name of the model, also used in pools.
        settings: Where vectors are kept, and how they are computed.

    Raises:
        MarError: The model does not exist.
    """
    from mar_st.mining.retrievers import BM25, Dense  # lazy: torch
    from mar_st.teachers.store import store_root  # lazy: torch

    if name == "bm25" or name.startswith("bm25:"):
        return BM25(name.removeprefix("bm25").removeprefix(":") or "char-bigram")
    retriever = Dense.open(model_source(name), store_root(settings.out), batch_size=settings.batch_size)
    folder = Path(name).resolve()
    # Of a folder only its name, since an edition says what its pools come from.
    if folder.is_dir():
        name = folder.parent.name if folder.name == "model" else folder.name
    retriever.name = name
    return retriever


def find_passages(
    source: Path, queries: Sequence[str], k: int, encoder: str | None = None
) -> list[list[dict[str, str]]]:
    """Return the best passages for each query, as they are shown to an LLM.

    Args:
        source: A folder of `mar index` with texts, or texts, which are searched with BM25.
        queries: The queries.
        k: Number of passages for each query.
        encoder: Query encoder of the index; default: the model that encoded it.

    Returns:
        `_id` and `text` (title and text) of the passages, best first.

    Raises:
        MarError: The index keeps no texts, or has no query encoder; or the texts cannot be read.
    """
    from mar_st.index.base import Index  # lazy: numpy
    from mar_st.index.folder import MANIFEST  # lazy: pyarrow
    from mar_st.index.searcher import Searcher  # lazy: numpy
    from mar_st.mining.retrievers import BM25  # lazy: torch

    if (source / MANIFEST).is_file():
        index = Index.open(source)
        if not index.has_texts:
            raise MarError(f"{source} keeps no texts to show to an LLM. Build it with the corpus.")
        found = Searcher.open(index, encoder or index.model_source()).search(queries, k) if queries else []
        return [
            [{"_id": hit.id, "text": f"{hit.title}\n{hit.text}".strip()} for hit in hits] for hits in found
        ]
    texts, retriever = list(read_texts(source)), BM25()
    retriever.prepare(queries, [text.full for text in texts])
    passages = [{"_id": text.id, "text": text.full} for text in texts]
    places = retriever.search(range(len(queries)), k)
    return [[passages[place] for place in row if place >= 0] for row in places]


def pool(settings: PoolSettings) -> Counts:
    """Search with every retriever and write `pools.jsonl`.

    A row is `{"query-id", "corpus-ids", "ranks"}`, the ids best first, `ranks` by retriever in their order
    (`null` where it did not find the document). The vectors of embedding models are kept in the store.
    """
    from mar_st.data.trec import is_run  # lazy: transformers

    queries, documents = list(read_texts(settings.queries)), list(read_texts(settings.documents))
    searched: dict[str, list[list[str]]] = {}
    entries = []
    for spec in settings.retrievers:
        name, lists, identity = (_listed if is_run(spec) else _searched)(spec, queries, documents, settings)
        if name in searched:
            raise MarError(f"Two of the retrievers have one name: {name}.")
        searched[name] = lists
        entries.append({"name": name, "identity": identity, "depth": settings.depth, "size": settings.size})
    names = list(searched)
    total, alone = 0, dict.fromkeys(names, 0)
    rows_of_pools: list[dict[str, Any]] = []
    for number, query in enumerate(text.id for text in queries):
        runs = {name: searched[name][number] for name in names}
        candidates = merge(runs, size=settings.size, depth=settings.depth)
        total += len(candidates)
        for found_by in candidates.values():
            if len(found_by) == 1:
                alone[next(iter(found_by))] += 1
        ranks = {name: [found_by.get(name) for found_by in candidates.values()] for name in names}
        rows_of_pools.append({"query-id": query, "corpus-ids": list(candidates), "ranks": ranks})
    write_rows(settings.out / "pools.jsonl", rows_of_pools)
    details = {"queries": len(queries), "documents": len(documents), "found by one alone": alone}
    return Counts(total, queries=len(queries), details=details, provenance={"retrievers": entries})


def _searched(
    name: str, queries: Sequence[Text], documents: Sequence[Text], settings: PoolSettings
) -> tuple[str, list[list[str]], dict[str, Any]]:
    """Return name, documents of each query, and identity of a model that searches."""
    retriever = open_retriever(name, settings)
    retriever.prepare([text.full for text in queries], [text.full for text in documents])
    lists: list[list[str]] = []
    starts = range(0, len(queries), QUERIES_PER_SEARCH)
    for start in tqdm(starts, desc=retriever.name, unit="searches", disable=None):
        rows = list(range(start, min(start + QUERIES_PER_SEARCH, len(queries))))
        found = retriever.search(rows, settings.depth)
        lists += [[documents[place].id for place in places if place >= 0] for places in found]
    return retriever.name, lists, retriever.identity()


def _listed(
    file: str, queries: Sequence[Text], documents: Sequence[Text], settings: PoolSettings
) -> tuple[str, list[list[str]], dict[str, Any]]:
    """Return the same of the file of a run, whose search was done elsewhere."""
    from mar_st.data.trec import read_run  # lazy: transformers

    ids, path = [text.id for text in queries], Path(file)
    run = read_run(path, queries=set(ids), documents={text.id for text in documents})
    lists = [list(run.get(query, {}))[: settings.depth] for query in ids]
    return path.stem, lists, {"kind": "run", "sha256": sha256(path)}


def _estimate(settings: PoolSettings, sizes: Mapping[str, Estimate]) -> Estimate:
    """Assume that every pool is full."""
    queries, documents = sizes["queries"].rows, sizes["documents"].rows
    most = min(settings.size, settings.depth * len(settings.retrievers), documents)
    return Estimate(queries * most, queries=queries)


POOL = Step("pool", PoolSettings, pool, "pools", estimate=_estimate, result_file="pools.jsonl")
