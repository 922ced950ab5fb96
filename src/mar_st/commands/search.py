"""`mar search`: search an index."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, model_validator

from mar_st.errors import MarError
from mar_st.files import printable
from mar_st.options import Argument, Settings, Switch, as_yaml, say

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mar_st.index.searcher import Searcher


#: Queries of a file that are encoded and searched at once.
QUERIES_PER_SEARCH = 64


class SearchSettings(Settings):
    """Settings of `mar search`."""

    index: Annotated[str, Argument()] = Field(description="Folder of the index, or its milvus: address.")
    query: Annotated[str | None, Argument()] = Field(
        None, description="Text of the query, or give --queries."
    )
    encoder: str | None = Field(
        None, description="Query encoder: exported folder, model, or mar-mini; default: the index's model."
    )
    query_encoder: str | None = Field(
        None, description="Name of the query encoder in a model with several, e.g. query-lookup."
    )
    k: Annotated[int | None, Switch("-k")] = Field(
        None, ge=1, description="Number of documents per query; default: 10, or 100 with --queries."
    )
    where: str | None = Field(
        None, description="Metadata filter, e.g. 'department=心内科|儿科,date>=2024', or JSON."
    )
    hybrid: bool = Field(False, description="Fuse the results with BM25; see `mar index tune`.")
    rerank: str | None = Field(None, description="Cross-encoder that reranks the best 50 documents.")
    queries: str | None = Field(None, description="File of queries (_id, text) to search for.")
    out: Path | None = Field(None, description="File for the run of --queries: *.trec (TREC) or *.json.")
    qrels: Path | None = Field(None, description="Qrels to score the run with, e.g. qrels/test.tsv.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.query is None) == (self.queries is None):
            raise ValueError("give a query or --queries FILE")
        if self.query is not None and not self.query.strip():
            raise ValueError("the query is blank; give a text")
        if self.queries is None and (self.out is not None or self.qrels is not None):
            raise ValueError("--out and --qrels require --queries")
        return self


def search(settings: SearchSettings) -> dict[str, Any]:
    """Search an index for one query or for a file of queries.

    The run of a file of queries can be written (--out) and scored (--qrels).
    """
    if settings.out is not None:
        from mar_st.data.trec import check_run_name  # lazy: transformers

        check_run_name(settings.out)  # before anything is searched
    from mar_st.index.base import Index  # lazy: numpy
    from mar_st.index.searcher import Searcher  # lazy: numpy

    opened = Index.open(settings.index)
    searcher = Searcher.open(
        opened,
        settings.encoder if settings.encoder is not None else opened.model_source(),
        query=settings.query_encoder,
        reranker=settings.rerank,
    )
    if settings.queries is not None:
        return _run(searcher, settings.queries, settings)
    hits = searcher.search(
        [settings.query or ""], settings.k or 10, where=settings.where, hybrid=settings.hybrid
    )[0]
    return {"hits": [hit.to_json() for hit in hits]}


def _run(searcher: Searcher, queries: str, settings: SearchSettings) -> dict[str, Any]:
    from tqdm import tqdm  # lazy: tqdm

    from mar_st.data.corpus import texts_by_id  # lazy: pyarrow
    from mar_st.data.trec import read_qrels, write_run  # lazy: pyarrow
    from mar_st.index.tune import evaluate  # lazy: numpy

    texts, k = texts_by_id(queries, "queries"), settings.k or 100
    if not texts:
        raise MarError(f"{queries} holds no queries.")
    grades = None if settings.qrels is None else read_qrels(settings.qrels)
    names, run = list(texts), dict[str, dict[str, float]]()
    for start in tqdm(range(0, len(names), QUERIES_PER_SEARCH), desc="search", unit="searches", disable=None):
        batch = names[start : start + QUERIES_PER_SEARCH]
        found = searcher.search([texts[n] for n in batch], k, where=settings.where, hybrid=settings.hybrid)
        for name, hits in zip(batch, found, strict=True):
            run[name] = {hit.id: hit.score for hit in hits}
    own = [name for name in run if name in run[name] and name not in (grades or {}).get(name, {})]
    if grades is not None and own:
        say(
            f"{len(own)} queries found a document with their own id, such as {own[0]}. If queries are "
            "documents too, leave those out of the run: they count as wrong."
        )
    if settings.out is not None:
        settings.out.parent.mkdir(parents=True, exist_ok=True)
        write_run(settings.out, run, tag="mar")
    return {"queries": len(texts), "k": k, **({} if grades is None else evaluate(run, grades, k))}


def found(result: Mapping[str, Any]) -> str:
    """Return hits, or the scores of a run, as lines without characters that control a terminal."""
    if "hits" not in result:
        return as_yaml(result)
    lines = [] if result["hits"] else ["nothing was found"]
    for hit in result["hits"]:
        legs = ", ".join(f"{name} {leg['rank']}" for name, leg in hit["legs"].items())
        lines.append(f"{hit['rank']:3}  {hit['score']:.4f}  {hit['id']}  {hit['title']}  [{legs}]")
        if hit["metadata"]:
            lines.append("     " + ", ".join(f"{name}={value}" for name, value in hit["metadata"].items()))
        if hit["snippet"]:
            lines.append(f"     {hit['snippet']}")
    return "\n".join(map(printable, lines))
