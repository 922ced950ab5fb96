"""`mar index`: `build` builds an index, `update` changes one, `tune` measures settings, `info` shows it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from mar_st.errors import MarError
from mar_st.options import Argument, Settings, Switch, say

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class IndexBuild(Settings):
    """Settings of `mar index build`."""

    vectors: Annotated[Path, Argument()] = Field(description="Folder of vectors written by `mar encode`.")
    out: Annotated[str, Argument()] = Field(
        description="Folder to write the index to, or milvus:PATH.db, or milvus:http://HOST:PORT."
    )
    corpus: str | None = Field(None, description="Corpus whose texts to store; default: the encoded corpus.")
    kind: Literal["auto", "exact", "int8", "hnsw", "ivf-pq"] = Field(
        "auto", description="Kind of index; auto: exact for few vectors, hnsw for many."
    )
    recall: float = Field(0.95, gt=0, le=1, description="Recall@10 to reach, relative to exact search.")
    queries: Path | None = Field(None, description="Folder of query vectors to measure recall with.")
    params: Annotated[tuple[str, ...], Switch("--set")] = Field(
        (), description="Parameter of the kind as NAME=VALUE, e.g. M=16; may be repeated."
    )
    bm25: bool = Field(True, description="Build a BM25 index, which hybrid search needs.")
    tokens: Literal["jieba", "char-bigram"] = Field("jieba", description="Tokenisation of BM25.")


class IndexUpdate(Settings):
    """Settings of `mar index update`."""

    index: Annotated[str, Argument()] = Field(description="Folder of the index, or its milvus: address.")
    add: Path | None = Field(None, description="Folder of vectors of the documents to add or replace.")
    delete: tuple[str, ...] = Field((), description="Id of a document to delete; may be repeated.")
    delete_from: Path | None = Field(None, description="File of ids of documents to delete, one per line.")
    corpus: str | None = Field(None, description="Corpus of --add; default: the encoded one.")
    compact: bool = Field(False, description="Build the index of the remaining documents again.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not (self.add or self.delete or self.delete_from or self.compact):
            raise ValueError("give --add, --delete, --delete-from or --compact")
        if self.corpus is not None and self.add is None:
            raise ValueError("--corpus belongs to --add")
        return self


class IndexTune(Settings):
    """Settings of `mar index tune`."""

    index: Annotated[str, Argument()] = Field(description="Folder of the index.")
    queries: str = Field(description="Queries (_id, text), of which at most 1,000 are used.")
    encoder: str | None = Field(None, description="Query encoder; default: the model of the index.")
    query_encoder: tuple[str, ...] = Field(
        (), description="Name of a query encoder in the model, e.g. query-lookup; may be repeated."
    )
    recall: float | None = Field(
        None, gt=0, le=1, description="Recall@10 to reach; default: as in the build."
    )
    threads: int | None = Field(None, ge=1, description="Threads of the encoder; default: all processors.")


def index_build(settings: IndexBuild) -> dict[str, Any]:
    """Build an index from a folder of vectors.

    The same command resumes an interrupted build.
    """
    from mar_st.encode import VectorFolder  # lazy: pyarrow
    from mar_st.index import build_index  # lazy: pyarrow

    manifest = build_index(
        settings.vectors,
        settings.out,
        corpus=settings.corpus,
        kind=settings.kind,
        params=dict(map(_parameter, settings.params)),
        recall=settings.recall,
        queries=None if settings.queries is None else VectorFolder.open(settings.queries)[:],
        bm25=settings.bm25,
        tokens=settings.tokens,
        say=say,
    )
    return {"index": settings.out, **manifest}


def index_update(settings: IndexUpdate) -> dict[str, Any]:
    """Add, replace or delete documents of an index.

    Each change of a folder is applied completely or not at all.
    """
    from mar_st.encode import VectorFolder  # lazy: pyarrow
    from mar_st.index import build  # lazy: pyarrow
    from mar_st.index.base import MILVUS_PREFIX  # lazy: numpy

    index, deleted = settings.index, [*settings.delete, *_lines(settings.delete_from)]
    manifest: dict[str, Any] = {}
    if index.startswith(MILVUS_PREFIX):
        from mar_st.index.milvus import MilvusIndex  # lazy: pymilvus

        if settings.compact:
            raise MarError("Milvus compacts by itself; --compact is for an index folder.")
        opened = MilvusIndex.connect(index)
        if deleted:
            opened.delete(deleted)
        if settings.add is not None:
            opened.add(VectorFolder.open(settings.add), corpus=settings.corpus)
        return {"index": index, **opened.about, "count": len(opened)}
    if deleted:
        manifest = build.delete(index, deleted)
    if settings.add is not None:
        manifest = build.add(index, settings.add, corpus=settings.corpus)
    if settings.compact:
        manifest = build.compact(index)
    elif build.worn(manifest):
        say(f"much of {index} was added or deleted; --compact makes it as fast as new")
    return {"index": index, **manifest}


def index_tune(settings: IndexTune) -> list[dict[str, Any]]:
    """Tune the search settings of an index for a query encoder.

    Measures the settings (ef, nprobe, rescore) that reach the recall, and stores them in the index.
    """
    from mar_st.index import tune_effort  # lazy: numpy
    from mar_st.index.runs import read_queries  # lazy: tqdm

    texts = list(read_queries(settings.queries).values())
    return [
        tune_effort(
            settings.index,
            texts,
            encoder=settings.encoder,
            query=name,
            target=settings.recall,
            threads=settings.threads,
        )
        for name in settings.query_encoder or (None,)
    ]


def index_info(index: str) -> dict[str, Any]:
    """Show what an index contains and how it was built."""
    from mar_st.index import Index  # lazy: numpy

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


def shown(done: Mapping[str, Any]) -> str:
    """Return a built or changed index as a line."""
    line = f"{done['index']}: {done['count']} documents, {done['dim']} dimensions, {done['kind']}"
    measured = done.get("measured")
    if measured:
        line += f", recall@10 {measured['recall@10']} of {measured['target']}"
    return line


def tuned(efforts: list[dict[str, Any]]) -> str:
    """Return tuned settings as lines."""
    return "\n".join(
        f"{effort['query'] or 'encoder'}: {effort['search']} finds {effort['recall@10']:.4f} of the exact "
        f"results of {effort['queries']} queries; the index's own {effort['before']['search']} finds "
        f"{effort['before']['recall@10']:.4f}"
        for effort in efforts
    )


def _parameter(setting: str) -> tuple[str, int | str]:
    name, sign, value = setting.partition("=")
    if not sign or not value:
        raise MarError(f"--set takes NAME=VALUE, such as M=16; got {setting!r}.")
    return name, int(value) if re.fullmatch(r"-?[0-9]{1,18}", value) else value


def _lines(path: Path | None) -> Iterator[str]:
    if path is None:
        return
    try:
        yield from filter(str.strip, path.read_text(encoding="utf-8-sig").splitlines())
    except (OSError, UnicodeDecodeError) as error:
        raise MarError(
            f"{path} cannot be read ({error}). Give a text file with an id on each line."
        ) from error
