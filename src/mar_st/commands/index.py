"""`mar index build` builds an index, `mar index update` changes one, `mar index info` shows it."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from pkgutil import iter_modules
from typing import Annotated, Any, Literal

import typer

from mar_st.commands.options import AsJson, IndexAddress
from mar_st.index import kinds
from mar_st.index.errors import IndexingError


def _known_kind(name: str) -> str:
    if name not in KIND_NAMES:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(map(repr, KIND_NAMES))}.")
    return name


#: Kinds of indexes, from the names of their modules: importing them would take as long as a search.
KIND_NAMES = ("auto", *(module.name.replace("_", "-") for module in iter_modules(kinds.__path__)))

Vectors = Annotated[Path, typer.Argument(help="Folder of vectors written by `mar encode`.")]
Out = Annotated[
    str, typer.Argument(help="Folder to write the index to, or milvus:PATH.db, or milvus:http://HOST:PORT.")
]
Corpus = Annotated[
    str | None,
    typer.Option(help="Corpus whose texts to store; default: the encoded corpus, if it is still there."),
]
Kind = Annotated[
    str,
    typer.Option(
        metavar=f"[{'|'.join(KIND_NAMES)}]",
        help="Kind of index; auto chooses one by measuring on a sample.",
        callback=_known_kind,
    ),
]
Memory = Annotated[
    str | None, typer.Option(help="Memory limit of the index for --kind auto, e.g. 2GB; default: none.")
]
Recall = Annotated[
    float, typer.Option(help="Recall@10 to reach, relative to exact search.", min=0.01, max=1.0)
]
Queries = Annotated[
    Path | None, typer.Option(help="Query vectors (.npy, or a folder) to measure recall with.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="Parameter of the kind as NAME=VALUE, e.g. M=16; may be repeated."),
]
NoBm25 = Annotated[bool, typer.Option("--no-bm25", help="Build no BM25 index, which hybrid search needs.")]
Tokens = Annotated[Literal["jieba", "char-bigram"], typer.Option(help="Tokenisation of BM25.")]
Sample = Annotated[int, typer.Option(help="Number of vectors that --kind auto measures on.", min=100)]
Add = Annotated[Path | None, typer.Option(help="Folder of vectors of the documents to add.")]
Replace = Annotated[Path | None, typer.Option(help="Folder of new vectors of documents in the index.")]
Delete = Annotated[list[str] | None, typer.Option(help="Id of a document to delete; may be repeated.")]
DeleteFrom = Annotated[Path | None, typer.Option(help="File of ids of documents to delete, one per line.")]
Compact = Annotated[bool, typer.Option("--compact", help="Merge the remaining documents into one segment.")]


def index_build(
    vectors: Vectors,
    out: Out,
    corpus: Corpus = None,
    kind: Kind = "auto",
    memory: Memory = None,
    recall: Recall = 0.95,
    queries: Queries = None,
    settings: Settings = None,
    no_bm25: NoBm25 = False,
    tokens: Tokens = "jieba",
    sample: Sample = 20_000,
    as_json: AsJson = False,
) -> None:
    """Build an index from a folder of vectors.

    The same command resumes an interrupted build.
    """
    from mar_st.index import build_index  # lazy: pyarrow

    manifest = build_index(
        vectors,
        out,
        corpus=corpus,
        kind=kind,
        params=_settings(settings or []),
        memory_limit=None if memory is None else parse_bytes(memory),
        recall=recall,
        queries=None if queries is None else _query_vectors(queries),
        bm25=not no_bm25,
        tokens=tokens,
        sample=sample,
        progress=sys.stderr.isatty(),
        say=lambda line: typer.echo(line, file=sys.stderr),
    )
    _report(out, manifest, as_json=as_json)


def index_update(
    index: IndexAddress,
    add: Add = None,
    update: Replace = None,
    delete: Delete = None,
    delete_from: DeleteFrom = None,
    corpus: Corpus = None,
    compact: Compact = False,
    as_json: AsJson = False,
) -> None:
    """Add, replace or delete documents of an index.

    Each change of a folder is applied completely or not at all.
    """
    deleted = [*(delete or []), *_lines(delete_from)]
    if delete_from is not None and not deleted:
        raise IndexingError(f"{delete_from} lists no ids. Give a text file with an id on each line.")
    if not (add or update or deleted or compact):
        raise typer.BadParameter("give --add, --update, --delete, --delete-from or --compact.")
    if corpus is not None and (add is None) == (update is None):
        raise typer.BadParameter(
            "--corpus belongs to --add or to --update, not to both; run them one after the other."
        )
    from mar_st.index.base import MILVUS_PREFIX  # lazy: numpy

    if index.startswith(MILVUS_PREFIX):
        if compact:
            raise IndexingError("Milvus compacts by itself; --compact is for an index folder.")
        _update_milvus(index, add, update, deleted, corpus, as_json=as_json)
        return
    from mar_st.index import update as updating  # lazy: pyarrow

    manifest: dict[str, Any] = {}
    progress = sys.stderr.isatty()
    if deleted:
        manifest = updating.delete(index, deleted)
    if update is not None:
        manifest = updating.add(index, update, corpus=corpus, replace=True, progress=progress)
    if add is not None:
        manifest = updating.add(index, add, corpus=corpus, progress=progress)
    if compact:
        manifest = updating.compact(index, progress=progress)
    elif updating.worn(manifest):
        typer.echo(f"much of {index} was added or deleted; --compact makes it as fast as new", err=True)
    _report(index, manifest, as_json=as_json)


def index_info(index: IndexAddress, as_json: AsJson = False) -> None:
    """Show what an index contains and how it was built."""
    from mar_st.index.base import Index  # lazy: numpy

    opened = Index.open(index)
    about: dict[str, Any] = {
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
        "matched": [match["query"] for match in opened.matches.values()],
    }
    if as_json:
        typer.echo(json.dumps(about, ensure_ascii=False, indent=2))
        return
    for name, value in about.items():
        typer.echo(f"{name:12} {json.dumps(value, ensure_ascii=False)}")


def parse_bytes(written: str) -> int:
    """Return the bytes of a size such as `2GB`, `512MiB` or `1000000`.

    Raises:
        IndexingError: The text is not a size.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", written.lower())
    if not match:
        raise IndexingError(f"{written!r} is not a size. Write it like 2GB, 512MiB or 1000000.")
    step = 1024 if match[3] else 1000
    return int(float(match[1]) * step ** " kmgt".index(match[2] or " "))


def _settings(given: list[str]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for setting in given:
        name, sign, value = setting.partition("=")
        if not sign or not value:
            raise typer.BadParameter(f"--set takes NAME=VALUE, such as M=16; got {setting!r}.")
        settings[name] = int(value) if re.fullmatch(r"-?[0-9]{1,18}", value) else value
    return settings


def _query_vectors(path: Path) -> Any:
    from mar_st.files.arrays import load_array  # lazy: numpy

    if path.is_dir():
        from mar_st.encode import VectorFolder  # lazy: pyarrow

        return VectorFolder.open(path)[:]
    try:
        return load_array(path).astype("float32")
    except (OSError, ValueError) as error:
        raise IndexingError(f"{path} is neither a folder of vectors nor an .npy file ({error}).") from error


def _lines(path: Path | None) -> list[str]:
    from mar_st.files.reading import NotUtf8Error, utf8_lines  # lazy: numpy

    if path is None:
        return []
    if not path.is_file():
        raise IndexingError(f"There is no file {path}. Give a text file with an id on each line.")
    try:
        return [line for _, line in utf8_lines(path) if line.strip()]
    except NotUtf8Error as error:
        raise IndexingError(str(error)) from error


def _update_milvus(
    target: str,
    add: Path | None,
    update: Path | None,
    gone: list[str],
    corpus: str | None,
    *,
    as_json: bool,
) -> None:
    from mar_st.encode import VectorFolder  # lazy: pyarrow
    from mar_st.index.corpus import encoded_corpus  # lazy: pyarrow
    from mar_st.index.milvus import MilvusIndex  # lazy: pyarrow

    opened = MilvusIndex.connect(target)
    if gone:
        opened.delete(gone)
    for path, replace in ((update, True), (add, False)):
        if path is not None:
            folder = VectorFolder.open(path)
            opened.add(folder, corpus=corpus or encoded_corpus(folder), replace=replace)
    if as_json:
        typer.echo(json.dumps({**opened.about, "count": len(opened)}, ensure_ascii=False, indent=2))
        return
    typer.echo(f"{target}: {len(opened)} documents")


def _report(out: str, manifest: dict[str, Any], *, as_json: bool) -> None:

    if as_json:
        typer.echo(json.dumps(manifest, ensure_ascii=False, indent=2))
        return
    about = f"{out}: {manifest['count']} documents, {manifest['dim']} dimensions, {manifest['kind']}"
    if "segments" in manifest:
        size = sum(file["bytes"] for segment in manifest["segments"] for file in segment["files"].values())
        about += f", {manifest['memory'] / 1e6:.1f} MB searched in memory, {size / 1e6:.1f} MB on disk"
    measured = manifest.get("measured")
    if measured:
        missed = "" if measured["reached"] else f", below the target of {measured['target']}"
        about += f", recall@10 {measured['recall@10']}{missed}"
    typer.echo(about)
