"""`mar mine`: from a data source to a folder of mined triples with a manifest."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mar_st.data import read_source, read_texts
from mar_st.files import JsonError, move_folder, read_json, refuse_link
from mar_st.files.locks import alone
from mar_st.mining.mine import Mined, Miner
from mar_st.mining.retrievers import BM25, CrossScorer, Dense
from mar_st.mining.rules import REASONS, MiningError, Rules

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mar_st.data import Triple
    from mar_st.mining.retrievers import Retriever, Scorer
    from mar_st.recipes.schema import Data

TRIPLES_FILE = "triples.jsonl"
MANIFEST = "manifest.json"
FORMAT = "mar-mined-1"


def mine_to(
    entry: Data,
    out: str | Path,
    models: Sequence[str],
    *,
    rules: Rules | None = None,
    teacher: str | None = None,
    corpus: str | Path | None = None,
    store: str | Path | None = None,
    prompt: str | None = None,
    dtype: Literal["float32", "bfloat16"] = "float32",
    batch_size: int = 64,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Mine hard negatives for a data entry and write them; a killed call resumes where it stopped.

    Args:
        entry: The data; `symmetric` entries search among their queries too.
        out: Folder of the result, `triples.jsonl` and `manifest.json`; unfinished work is in `OUT.run`.
        models: Retrievers: `bm25`, `bm25:jieba`, folders or Hub names.
        rules: Rules that filter and choose candidates.
        teacher: Model whose scores the margins apply to; `cross:NAME` for a cross-encoder. Default: the first
            retriever.
        corpus: Documents to search: a file (JSONL with `text`, or one per line) or a folder with
            corpus.jsonl. Default: the documents of the data.
        store: Folder of vectors; default `$MAR_STORE`, else `teacher-store` beside `out`.
        prompt: Prefix of queries for dense models; default their own.
        dtype: Dtype that dense models compute in; `bfloat16` uses autocast.
        batch_size: Texts per forward pass.
        say: Receives one line per phase.

    Returns:
        The manifest: settings, counts, dropped candidates by filter, sha256 of the triples.

    Raises:
        MarError: Data, a corpus or a model is missing, `out` holds something else, or another process is
            writing it.
    """
    from mar_st.teachers.store import store_root  # lazy: sentence_transformers

    rules, out = rules or Rules(), Path(out)
    if out.suffix in (".jsonl", ".json", ".parquet") or out.name in ("", ".."):
        raise MiningError(
            f"OUT is a folder of its own ({TRIPLES_FILE} and {MANIFEST} go into it); got {out}."
        )
    source = read_source(entry, rules.seed)
    say(f"data: {len(source.triples)} triples")
    for note in source.notes():
        say(note)
    options: dict[str, Any] = {
        "store": store or store_root(out), "prompt": prompt, "symmetric": entry.symmetric,
        "dtype": dtype, "batch_size": batch_size,
    }  # fmt: skip
    miner = Miner(
        [_retriever(name, options) for name in dict.fromkeys(models)],
        source.triples,
        None if corpus is None else _corpus(Path(corpus)),
        rules=rules,
        scorer=None if teacher is None else _scorer(teacher, options),
        symmetric=entry.symmetric,
    )
    digest = _digest(miner, source.triples)
    work = out.with_name(f"{out.name}.run")
    with alone(work, MiningError):
        finished = _finished(out, digest)
        if finished is not None:
            say(f"{out}: finished before, kept")
            return finished
        say(f"mining: {len(miner.questions)} queries in {len(miner.corpus)} documents by {', '.join(models)}")
        mined = miner.run(work)
        manifest = {
            "format": FORMAT,
            "digest": digest,
            "data": entry.model_dump(mode="json", exclude_defaults=True),
            "models": list(models),
            "teacher": teacher,
            "corpus": None if corpus is None else str(corpus),
            "rules": rules.to_json(),
            **_report(mined),
        }
        _write(out, mined, manifest)
        shutil.rmtree(work, ignore_errors=True)
    return manifest


def _retriever(name: str, options: dict[str, Any]) -> Retriever:
    kind, _, tokens = name.partition(":")
    if kind == "bm25":
        return BM25(tokens or "char-bigram")  # type: ignore[arg-type]
    return Dense(name, **options)


def _scorer(name: str, options: dict[str, Any]) -> Scorer:
    if name.startswith("cross:"):
        return CrossScorer(name.removeprefix("cross:"), batch_size=options["batch_size"])
    return _retriever(name, options)


def _corpus(path: Path) -> list[str]:
    return list(read_texts(path / "corpus.jsonl" if path.is_dir() else path))


def _finished(out: Path, digest: str) -> dict[str, Any] | None:
    """Return the manifest of a folder that was finished with the same data and settings, else `None`.

    Raises:
        MiningError: The folder exists and holds something else, or its triples were changed.
    """
    if (out / MANIFEST).is_file():
        try:
            manifest: Any = read_json(out / MANIFEST)
        except JsonError:
            manifest = None
        if isinstance(manifest, dict) and manifest.get("digest") == digest:
            _check_triples(out / TRIPLES_FILE, manifest.get("sha256"))
            return manifest
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise MiningError(
            f"{out} exists and was not mined from these data with these settings; delete it or choose "
            "another."
        )
    refuse_link(out, MiningError)
    return None


def _check_triples(path: Path, digest: Any) -> None:
    try:
        with path.open("rb") as stream:
            unchanged = hashlib.file_digest(stream, "sha256").hexdigest() == digest
    except OSError:
        unchanged = False
    if not unchanged:
        raise MiningError(
            f"{path} is missing or was changed after it was mined; delete {path.parent} and mine again."
        )


def _digest(miner: Miner, triples: Sequence[Triple]) -> str:
    """Return the digest of everything that the result depends on."""
    digest = hashlib.sha256()
    for triple in triples:
        digest.update(json.dumps(_row(triple), ensure_ascii=False).encode() + b"\n")
    identity = [miner.identity(), digest.hexdigest()]
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()


def _row(triple: Triple) -> dict[str, Any]:
    row: dict[str, Any] = {
        "query": triple.query, "positives": triple.positives, "negatives": triple.negatives,
    }  # fmt: skip
    if triple.instruction:
        row["instruction"] = triple.instruction
    if triple.source:
        row["source"] = triple.source
    return row


def _report(mined: Mined) -> dict[str, Any]:
    """Return the part of the manifest that describes the result; candidates in the order of the filters."""
    names = ("candidates", *REASONS, "mined")
    candidates = {name: mined.candidates.get(name, 0) for name in names}
    return {"counts": mined.counts, "candidates": candidates, "scores": mined.scores}


def _write(out: Path, mined: Mined, manifest: dict[str, Any]) -> None:
    part = out.with_name(f"{out.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    lines = (json.dumps(_row(triple), ensure_ascii=False) + "\n" for triple in mined.triples)
    with (part / TRIPLES_FILE).open("w", encoding="utf-8") as stream:
        stream.writelines(lines)
    with (part / TRIPLES_FILE).open("rb") as stream:
        manifest["sha256"] = hashlib.file_digest(stream, "sha256").hexdigest()
    (part / MANIFEST).write_text(json.dumps(manifest, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    if out.is_dir():
        out.rmdir()  # empty
    move_folder(part, out)
