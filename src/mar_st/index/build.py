"""Building an index folder from a folder of vectors and its corpus.

Every step writes its files under temporary names and then moves them into place; a killed build resumes with
the missing steps. The manifest is written last, so an index that can be opened is complete.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from mar_st.files import make_folder, write_json
from mar_st.index import lexical
from mar_st.index.base import MILVUS_PREFIX
from mar_st.index.choose import SAMPLE_SIZE, choose, table_lines
from mar_st.index.corpus import documents_of, encoded_corpus
from mar_st.index.documents import ROWS, Documents, DocumentWriter, Stored
from mar_st.index.errors import IndexingError, need
from mar_st.index.manifest import (
    FORMAT,
    MANIFEST,
    SEGMENTS,
    VERSION,
    finish_segment,
    writing,
)
from mar_st.index.milvus import build_milvus
from mar_st.index.registry import AUTO, check_kind, kind_of
from mar_st.index.source import FolderSource, unit
from mar_st.index.tune import calibrate, exact_results
from mar_st.text.bm25 import K1, B
from mar_st.text.words import TOKENIZERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import numpy as np

    from mar_st.encode import VectorFolder
    from mar_st.index.filters import FieldType

#: Arguments and completed steps of an unfinished build; removed at its end.
_PLAN_FILE = "build.json"


def build_index(
    vectors: VectorFolder | str | Path,
    out: str | Path,
    *,
    corpus: str | Path | None = None,
    kind: str = "auto",
    params: Mapping[str, Any] | None = None,
    memory_limit: int | None = None,
    recall: float = 0.95,
    queries: np.ndarray | None = None,
    bm25: bool = True,
    tokens: str = "jieba",
    sample: int = SAMPLE_SIZE,
    progress: bool = True,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Build an index.

    Args:
        vectors: A folder of vectors that `mar encode` wrote.
        out: Folder of the index; or `milvus:PATH.db`, `milvus:http://HOST:PORT`, each optionally followed by
            `/COLLECTION`.
        corpus: The documents, for texts, metadata and BM25; default the encoded corpus, if it still exists.
        kind: `exact`, `hnsw`, `ivf-pq`, `int8`, `binary`, or `auto`: measure and choose.
        params: Build settings of the kind (see `mar_st.index.kinds`).
        memory_limit: Bytes that `auto` may use.
        recall: Recall@10 that the search settings are tuned to reach.
        queries: Query vectors, `(n, dim)`, to measure recall with; default generated ones.
        bm25: Also index words, if there is a corpus.
        tokens: Tokenizer of BM25: `jieba` or `char-bigram`.
        sample: Vectors that `auto` measures on.
        progress: Show progress bars.
        say: Receives a line for each step.

    Returns:
        The manifest.

    Raises:
        IndexingError: An argument does not fit, or the folder already holds an index.
    """
    from mar_st.encode import VectorFolder  # lazy: safetensors

    need("pyarrow")
    folder = vectors if isinstance(vectors, VectorFolder) else VectorFolder.open(vectors)
    _check(folder, kind, recall, tokens, queries)
    if queries is not None and folder.similarity == "cosine":
        queries = unit(queries)
    corpus = corpus if corpus is not None else encoded_corpus(folder)
    to_milvus = str(out).startswith(MILVUS_PREFIX)
    if not to_milvus and (Path(out) / MANIFEST).is_file():
        raise IndexingError(f"{out} holds an index already. Give another folder, or use 'mar index update'.")
    if kind == AUTO and params and not to_milvus:
        raise IndexingError(
            f"The settings {', '.join(map(str, params))} belong to one kind of index; {AUTO} chooses a kind "
            "and its settings. Name the kind, or leave the settings out."
        )
    folder.verify()  # damage would be copied, and get a valid digest
    if to_milvus:
        return build_milvus(
            folder, str(out), corpus=corpus, kind=kind, params=params or {}, recall=recall, queries=queries,
            progress=progress, say=say,
        )  # fmt: skip
    need("faiss")
    arguments: dict[str, Any] = {
        "vectors": manifest_digest(folder), "corpus": None if corpus is None else str(corpus), "kind": kind,
        "params": dict(params or {}), "memory_limit": memory_limit, "recall": recall, "bm25": bm25,
        "tokens": tokens, "sample": sample,
        "queries": None if queries is None else hashlib.sha256(queries.tobytes()).hexdigest(),
    }  # fmt: skip
    return _build_folder(Path(out), folder, arguments, queries, progress=progress, say=say)


def _build_folder(
    out: Path,
    folder: VectorFolder,
    arguments: dict[str, Any],
    queries: np.ndarray | None,
    *,
    progress: bool,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Build an index folder; steps that a killed build with the same arguments finished are skipped."""
    corpus, kind = arguments["corpus"], arguments["kind"]
    make_folder(out)
    with writing(out):
        plan = _plan(out, arguments)
        part = out / SEGMENTS / "000001"
        part.mkdir(parents=True, exist_ok=True)
        source = FolderSource(folder)
        if corpus is None:
            say("no corpus: the index will return only ids, without texts, filters and BM25")
        if "fields" not in plan:
            plan["fields"] = write_documents(part, folder, corpus, progress=progress)
            write_json(out / _PLAN_FILE, plan)
        if kind == AUTO and "choice" not in plan:
            plan["choice"] = choose(
                source,
                limit=arguments["memory_limit"],
                target=arguments["recall"],
                queries=queries,
                sample=arguments["sample"],
                say=say,
            )
            write_json(out / _PLAN_FILE, plan)
        choice = plan.get("choice") or {"kind": kind, "params": arguments["params"]}
        for line in table_lines(choice["measured"]) if "measured" in choice else []:
            say(line)
        say(choice.get("why", f"kind {kind}"))
        manifest = _finish(
            out, part, source, folder, plan["fields"], choice, arguments, queries, progress=progress
        )
        (out / _PLAN_FILE).unlink()
    return manifest


def _finish(
    out: Path, part: Path, source: FolderSource, folder: VectorFolder, fields: dict[str, FieldType],
    choice: dict[str, Any], arguments: dict[str, Any], queries: np.ndarray | None, *, progress: bool,
) -> dict[str, Any]:  # fmt: skip
    """Build the missing parts of the segment, tune the search settings, write the manifest."""
    kind = kind_of(choice["kind"])
    settings = kind.settings(choice["params"], source.dim, len(source))
    kind.construct(part, source, settings, progress=progress)
    words = None
    if arguments["bm25"] and arguments["corpus"] is not None:
        mean = lexical.build(part, Documents(part), arguments["tokens"], progress=progress)
        words = {"tokens": arguments["tokens"], "k1": K1, "b": B, "mean_length": mean}
    search, measured = dict(kind.SEARCH), None
    if not kind.EXACT:
        expected = exact_results(source, queries, progress=progress)
        measured = calibrate(kind(part), expected, arguments["recall"], kind.LADDER)
        search = {**search, **measured.pop("search")}
        measured = {**measured, "target": arguments["recall"]}
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "generation": 1,
        "model": folder.manifest.get("model"),
        "space": folder.space,
        "dim": source.dim,
        "similarity": folder.similarity,
        "vectors": {**folder.manifest["settings"], "digest": arguments["vectors"]},
        "texts": arguments["corpus"] is not None,
        "fields": fields,
        "kind": kind.kind,
        "params": settings,
        "search": search,
        "measured": measured,
        "choice": choice if "why" in choice else None,
        "memory": kind.memory(settings, source.dim, len(source)),
        "bm25": words,
        "count": len(source),
        "segments": [segment_entry(part, kind.kind, settings, len(source))],
    }
    write_json(out / MANIFEST, manifest)
    return manifest


def segment_entry(part: Path, kind: str, params: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Return the manifest entry of a finished segment."""
    return {
        "name": part.name, "count": count, "live": count, "deleted": None, "kind": kind,
        "params": dict(params), "files": finish_segment(part),
    }  # fmt: skip


def write_documents(
    part: Path,
    folder: VectorFolder,
    corpus: str | Path | None,
    *,
    before: Iterable[Stored] = (),
    fields: Mapping[str, FieldType] | None = None,
    progress: bool,
) -> dict[str, FieldType]:
    """Write the documents of a folder of vectors, in its order.

    Args:
        part: Folder of the segment.
        folder: The vectors.
        corpus: The documents; without them only ids are kept.
        before: Documents to write first.
        fields: Existing types of metadata fields.
        progress: Show a progress bar.

    Returns:
        Types of the metadata fields.

    Raises:
        IndexingError: Ids repeat, or corpus and vectors do not belong together.
    """
    (part / ROWS).unlink(missing_ok=True)
    writer = DocumentWriter(part, fields)
    for document in before:
        writer.add(document)
    documents = documents_of(folder, corpus)
    for document in tqdm(
        documents, total=len(folder), desc="documents", unit="documents", disable=not progress
    ):
        writer.add(document)
    return writer.close()


def _check(folder: VectorFolder, kind: str, recall: float, tokens: str, queries: np.ndarray | None) -> None:
    check_kind(kind)
    if not 0 < recall <= 1:
        raise IndexingError(f"recall must be above 0 and at most 1; got {recall}.")
    if tokens not in TOKENIZERS:
        raise IndexingError(f"The tokenizer of BM25 is {' or '.join(TOKENIZERS)}; got {tokens!r}.")
    if folder.similarity not in ("cosine", "dot"):
        raise IndexingError(
            f"{folder.path} has the similarity {folder.similarity}; an index supports cosine and dot."
        )
    if queries is not None and (queries.ndim != 2 or queries.shape[1] != folder.dim or not len(queries)):
        raise IndexingError(f"Vectors of queries have shape (queries, {folder.dim}); got {queries.shape}.")


def _plan(out: Path, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the plan of an interrupted build with the same arguments, or start a new one.

    Segments that were written with other arguments are deleted.
    """
    if (out / _PLAN_FILE).is_file():
        plan: dict[str, Any] = json.loads((out / _PLAN_FILE).read_text(encoding="utf-8"))
        if plan["asked"] == json.loads(json.dumps(arguments)):
            return plan
    elif any(path.name != ".lock" for path in out.iterdir()):
        raise IndexingError(f"{out} holds other files and no index. Give a new or empty folder.")
    shutil.rmtree(out / SEGMENTS, ignore_errors=True)
    plan = {"asked": arguments}
    write_json(out / _PLAN_FILE, plan)
    return plan


def manifest_digest(folder: VectorFolder) -> str:
    """Return the digest of a folder's manifest, which holds those of its files."""
    return hashlib.sha256(json.dumps(folder.manifest, sort_keys=True).encode()).hexdigest()
