"""`mar encode` and `mar index`: documents to vectors, and indexes of these."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from mar_st.encode.settings import EncodeSettings, Executor
from mar_st.options import Argument, Settings, say

if TYPE_CHECKING:
    from collections.abc import Mapping


class EncodeCommand(EncodeSettings):
    """Settings of `mar encode`."""

    model: Annotated[str, Argument()] = Field(
        description="Model: a saved MAR, another model (folder or Hub name), or mar-mini."
    )
    corpus: Annotated[str, Argument()] = Field(
        description="Corpus: a JSONL, CSV or Parquet file, a folder with one, or hub:ORG/NAME:SPLIT."
    )
    out: Annotated[Path, Argument()] = Field(description="Folder to write the vectors to.")
    engine: Executor = Field(
        "local", description="Where to run: in one process, or on all GPUs and machines of a Ray cluster."
    )


def encode(settings: EncodeCommand) -> dict[str, Any]:
    """Encode a corpus into a folder of vectors.

    The same command resumes an interrupted run.
    """
    from mar_st.encode.encoding import encode_corpus  # lazy: pyarrow

    folder = encode_corpus(
        settings.model,
        settings.corpus,
        settings.out,
        EncodeSettings(**{name: getattr(settings, name) for name in EncodeSettings.model_fields}),
        engine=settings.engine,
        say=say,
    )
    return {
        "out": str(folder.path),
        **{key: value for key, value in folder.manifest.items() if key != "shards"},
    }


class IndexBuild(Settings):
    """Settings of `mar index build`."""

    vectors: Annotated[Path, Argument()] = Field(description="Folder of vectors written by `mar encode`.")
    out: Annotated[str, Argument()] = Field(
        description="Folder to write the index to, or milvus:PATH.db, or milvus:http://HOST:PORT."
    )
    corpus: str | None = Field(None, description="Corpus whose texts to store; default: the encoded corpus.")
    kind: Literal["auto", "exact", "hnsw", "ivf-pq"] = Field(
        "auto", description="Kind of index; auto: exact for few vectors, hnsw for many."
    )
    bm25: bool = Field(True, description="Build a BM25 index, which hybrid search needs.")


class IndexUpdate(Settings):
    """Settings of `mar index update`."""

    index: Annotated[str, Argument()] = Field(description="Folder of the index, or its milvus: address.")
    add: Path | None = Field(None, description="Folder of vectors of the documents to add or replace.")
    corpus: str | None = Field(None, description="Corpus of --add; default: the encoded one.")
    delete: tuple[str, ...] = Field((), description="Id of a document to delete; may be repeated.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not (self.add or self.delete):
            raise ValueError("give --add or --delete")
        if self.corpus is not None and self.add is None:
            raise ValueError("--corpus belongs to --add")
        return self


class IndexTune(Settings):
    """Settings of `mar index tune`."""

    index: Annotated[str, Argument()] = Field(description="Folder of the index.")
    queries: str = Field(description="Queries (_id, text), of which at most 1,000 are used.")
    qrels: Path | None = Field(
        None, description="Qrels of the queries, to measure the weight of BM25 in hybrid search with."
    )
    encoder: str | None = Field(None, description="Query encoder; default: the model of the index.")
    query_encoder: str | None = Field(
        None, description="Name of the query encoder in a model with several, e.g. query-lookup."
    )
    recall: float = Field(0.95, gt=0, le=1, description="Recall@10 to reach, relative to exact search.")


def index_build(settings: IndexBuild) -> dict[str, Any]:
    """Build an index from a folder of vectors.

    After an interruption the same command starts again.
    """
    from mar_st.index.build import build_index  # lazy: pyarrow

    manifest = build_index(
        settings.vectors,
        settings.out,
        corpus=settings.corpus,
        kind=settings.kind,
        bm25=settings.bm25,
        say=say,
    )
    return _described(settings.out, manifest)


def index_update(settings: IndexUpdate) -> dict[str, Any]:
    """Add, replace or delete documents of an index.

    Documents are added first; each of the two changes is applied completely or not at all. A change of more
    than a fifth of the documents builds the index again.
    """
    from mar_st.encode.folder import VectorFolder  # lazy: pyarrow
    from mar_st.index import build  # lazy: pyarrow
    from mar_st.index.base import MILVUS_PREFIX  # lazy: numpy

    index = settings.index
    manifest: dict[str, Any] = {}
    if index.startswith(MILVUS_PREFIX):
        from mar_st.index.milvus import MilvusIndex  # lazy: pymilvus

        opened = MilvusIndex.connect(index)
        if settings.add is not None:
            opened.add(VectorFolder.open(settings.add), corpus=settings.corpus)
        if settings.delete:
            opened.delete(settings.delete)
        return {"index": index, **opened.about, "count": len(opened)}
    if settings.add is not None:  # first, since it can be repeated
        manifest = build.add(index, settings.add, corpus=settings.corpus)
    if settings.delete:
        manifest = build.delete(index, settings.delete)
    return _described(index, manifest)


def _described(index: str, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a manifest says about an index, without its files."""
    return {"index": index, **{name: value for name, value in manifest.items() if name != "segments"}}


def index_tune(settings: IndexTune) -> dict[str, Any]:
    """Tune an index for a query encoder.

    Measures the search settings (ef, nprobe, rescore) that reach the recall, and with --qrels the weight of
    BM25 in hybrid search, and stores them in the index.
    """
    from mar_st.data.corpus import texts_by_id  # lazy: pyarrow
    from mar_st.data.trec import read_qrels  # lazy: pyarrow
    from mar_st.index.tune import tune  # lazy: numpy

    return tune(
        settings.index,
        texts_by_id(settings.queries, "queries"),
        qrels=None if settings.qrels is None else read_qrels(settings.qrels),
        encoder=settings.encoder,
        query=settings.query_encoder,
        target=settings.recall,
    )


def index_info(index: str) -> dict[str, Any]:
    """Show what an index contains and how it was built."""
    from mar_st.index.base import Index  # lazy: numpy

    opened = Index.open(index)
    return {
        "index": opened.name,
        "kind": opened.kind,
        "documents": len(opened),
        "dim": opened.dim,
        "similarity": opened.similarity,
        "model": opened.model,
        "texts": opened.has_texts,
        "bm25": opened.has_words,
        "fields": opened.fields,
        "settings": opened.settings,
        "tuned": [effort["query"] for effort in opened.efforts.values()],
    }
