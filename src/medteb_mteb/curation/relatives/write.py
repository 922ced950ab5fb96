"""Writes a built task as an edition: a folder in the Hub layout with a card and a manifest."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from mar_st.files import move_folder, sync_folder
from medteb_mteb.curation.files.folder import alone, write_text
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.editions import MANIFEST_NAME, EditionError, load_edition, verify, write_manifest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from medteb_mteb.editions import Edition

__all__ = ["BuiltSet", "write_built"]

#: Name of the editions that are built from raw files.
EDITION_NAME, EDITION_VERSION = "raw", "1"


@dataclass(frozen=True)
class BuiltSet:
    """A data set made of raw files.

    Attributes:
        task: Name of the task.
        type: Type of the task, as named by mteb.
        licence: Licence stated by the source; `not specified` if it states none.
        note: Description of the data and their differences from the published ones, for card and manifest.
        queries: Texts by id, in order.
        corpus: Title and text by id, in order.
        qrels: Grades by query and document.
        candidates: Documents to rerank, by query; empty for retrieval.
        rows: Rows of a task that is neither retrieval nor reranking.
        prompt: Instruction for queries.
        left_out: Number of records left out, by reason.
        options: Options of the build.
    """

    task: str
    type: str
    licence: str
    note: str
    queries: Mapping[str, str] = field(default_factory=dict)
    corpus: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    qrels: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    candidates: Mapping[str, Sequence[str]] = field(default_factory=dict)
    rows: Sequence[Mapping[str, Any]] = ()
    prompt: str = ""
    left_out: Mapping[str, int] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)

    def counts(self) -> dict[str, int]:
        """Return the number of records by kind, for the manifest."""
        if self.rows:
            return {"pairs": len(self.rows)}
        pairs = sum(map(len, self.qrels.values()))
        return {"queries": len(self.queries), "corpus": len(self.corpus), "qrels": pairs}

    def check(self) -> None:
        """Check that there is something to score, and that a table can hold the ids.

        Raises:
            BuildError: There is nothing to score, or an id is unusable.
        """
        if not self.rows and not (self.queries and self.corpus and self.qrels):
            raise BuildError(
                f"{self.task}: the raw files hold nothing to build from: {len(self.queries)} queries with a "
                f"positive, {len(self.corpus)} documents."
            )
        for key in (*self.queries, *self.corpus):
            if not key.strip() or re.search("[\t\n\r]", key):
                raise BuildError(
                    f"{self.task}: the id {key!r} is empty, or has a tab or a line break, which end a cell "
                    "of the qrels. Give this text another id in the raw files."
                )


def write_built(built: BuiltSet, out: Path, used: Mapping[str, str]) -> tuple[Edition, bool]:
    """Write a set to a temporary folder, then move it to `out/<task>`.

    Args:
        built: The set.
        out: Root of editions, as `MEDTEB_DATA`.
        used: sha256 of the raw files, by name.

    Returns:
        The edition, and True if it already existed.

    Raises:
        BuildError: The folder holds another edition, or the edition cannot be written.
    """
    built.check()
    with alone(out):
        target = out / built.task
        part = Path(tempfile.mkdtemp(prefix=f".{built.task}-", dir=out)) / built.task
        try:
            part.mkdir()
            left_out = {reason: number for reason, number in built.left_out.items() if number}
            _write_tables(built, part)
            write_text(part / "README.md", _card(built, used))
            edition = write_manifest(
                part,
                task=built.task,
                name=EDITION_NAME,
                version=EDITION_VERSION,
                licence=built.licence,
                counts=built.counts(),
                type=built.type,
                languages=["eng-Latn"],
                domains=["Medical", "Written"],
                description=built.note,
                prompt={"query": built.prompt} if built.type in ("Retrieval", "Reranking") else built.prompt,
                left_out=left_out,
                options=dict(built.options),
                made_from=dict(sorted(used.items())),
            )
            if target.exists():
                return _same(target, edition), True
            sync_folder(part)
            move_folder(part, target)
            return load_edition(target), False
        except OSError as error:
            raise BuildError(f"{target} cannot be written ({error.strerror}).") from error
        finally:
            shutil.rmtree(part.parent, ignore_errors=True)


def _same(target: Path, built: Edition) -> Edition:
    try:
        existing = load_edition(target)
        verify(existing)
    except EditionError as error:
        raise BuildError(
            f"{target} was changed after the build: {error} Delete it and build it again."
        ) from None
    if existing.digest != built.digest:
        raise BuildError(
            f"{target} holds another edition ({existing.name} {existing.version}, {existing.digest[:12]}; "
            f"this one is {built.digest[:12]}). Give another folder, or delete that one."
        )
    return existing


def _write_tables(built: BuiltSet, folder: Path) -> None:
    if built.rows:
        _write_jsonl(folder / "test.jsonl", built.rows)
        return
    corpus = ({"_id": key, "title": title, "text": text} for key, (title, text) in built.corpus.items())
    _write_jsonl(folder / "corpus.jsonl", corpus)
    _write_jsonl(folder / "queries.jsonl", ({"_id": k, "text": text} for k, text in built.queries.items()))
    (folder / "qrels").mkdir()
    lines = [f"{query}\t{d}\t{grade}" for query, grades in built.qrels.items() for d, grade in grades.items()]
    write_text(folder / "qrels" / "test.tsv", "\n".join(["query-id\tcorpus-id\tscore", *lines]) + "\n")
    if built.candidates:
        rows = ({"query-id": query, "corpus-ids": list(ids)} for query, ids in built.candidates.items())
        _write_jsonl(folder / "top_ranked.jsonl", rows)


def _write_jsonl(path: Path, rows: Any) -> None:
    write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def _card(built: BuiltSet, used: Mapping[str, str]) -> str:
    header = {"language": "en", "license": built.licence, "pretty_name": built.task}
    counts = ", ".join(f"{number:,} {kind}" for kind, number in built.counts().items())
    left_out = ", ".join(f"{number:,} {reason}" for reason, number in built.left_out.items() if number)
    options = ", ".join(f"{name}={value}" for name, value in built.options.items())
    return "\n".join(
        [
            "---",
            yaml.safe_dump(header, sort_keys=False).rstrip(),
            "---",
            f"# {built.task}",
            "",
            built.note,
            "",
            f"{counts}. Left out: {left_out or 'nothing'}." + (f" Options: {options}." if options else ""),
            "",
            f"Built with `medteb build relatives {built.task}`; `{MANIFEST_NAME}` has the digests of the "
            "data and of the raw files:",
            "",
            *(f"- `{name}` {digest}" for name, digest in _shown(used)),
            "",
        ]
    )


def _shown(used: Mapping[str, str]) -> list[tuple[str, str]]:
    return sorted(used.items())[:20]
