"""Running one step of a build: shard by shard, resumable, with a manifest at the end.

A step's folder::

    step.json               identity of the step: its name, its settings, the digest of its input, the sources
                            of the texts if they are given
    records-00000.jsonl     what it kept of the first shard, see `Text.to_json`
    dropped-00000.jsonl     what it dropped, with the reason
    shard-00000.json        counts of a finished shard, as long as the step is not finished
    manifest.json           written last: counts, reasons, digests of the files, the steps before this one
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tqdm.auto import tqdm

from medteb_mteb.curation.files.folder import alone, claim, lineage, read_json, write_json, write_text
from medteb_mteb.curation.files.read import MANIFEST, concealed, read_texts, source_digest
from medteb_mteb.curation.files.records import BuildError, Dropped, Text
from medteb_mteb.editions import sha256_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from medteb_mteb.curation.files.sources import TextSource

__all__ = ["TEXTS_PER_SHARD", "Step", "TextsReport", "run_step"]

#: Texts of a shard.
TEXTS_PER_SHARD = 10_000
SCHEMA_VERSION = 1


class Step(Protocol):
    """One step: texts in, texts out, each dropped one with a reason.

    A step whose input must not be guessed has an attribute `reads_private`; the digest of its input is then
    written in concealed form.
    """

    name: str

    def settings(self) -> Mapping[str, Any]:
        """Return, as JSON values, everything the output depends on besides the texts."""

    def restore(self, kept: Sequence[Text]) -> None:
        """Take the kept rows of a shard that an earlier run has finished, in the order of the shards."""

    def __call__(self, texts: Sequence[Text]) -> Iterable[Text | Dropped]:
        """Process the texts of the next shard: return one `Text` or `Dropped` for each, in their order."""


@dataclass(frozen=True)
class TextsReport:
    """Report of a step.

    Attributes:
        folder: Folder of the output.
        read: Number of texts read.
        kept: Number of texts kept.
        dropped: Number of dropped texts by reason.
        resumed: Number of texts finished by an earlier run.
    """

    folder: Path
    read: int
    kept: int
    dropped: dict[str, int] = field(default_factory=dict)
    resumed: int = 0


def run_step(
    step: Step,
    source: str | Path,
    out: str | Path,
    *,
    columns: Mapping[str, str] | None = None,
    sources: Sequence[TextSource] = (),
    shard: int = TEXTS_PER_SHARD,
    show_progress: bool = True,
) -> TextsReport:
    """Run a step over a source, or resume an interrupted run.

    All rows are checked before the first is processed. A run that is killed at any moment and started again
    writes the same bytes as an uninterrupted one; a finished folder is not changed.

    Args:
        step: The step.
        source: See `read_texts`; the folder of an earlier step, or raw files.
        out: Folder to write.
        columns: See `read_texts`.
        sources: Sources of the texts, named in the manifest of this step and of every later one.
        shard: Texts per shard.
        show_progress: Show a progress bar.

    Raises:
        BuildError: The folder belongs to another step, other settings or other input, is in use, or is the
            input's folder.
        FolderError: The input has unusable rows.
    """
    folder = Path(out)
    if not str(source).startswith("hub:") and folder.resolve() == Path(source).resolve():
        raise BuildError(f"{folder} is the input; give another folder to write to.")
    copies: Counter[str] = Counter()
    total = sum(1 for _ in read_texts(source, columns, dropped=copies))
    digest = source_digest(source, columns)
    if getattr(step, "reads_private", False):
        digest = concealed(digest)
    identity = {
        "schema_version": SCHEMA_VERSION,
        "step": step.name,
        "settings": dict(step.settings()),
        "input": digest,
        "shard": shard,
        # Absent if none are given, as in folders of earlier versions.
        **({"sources": [one.to_json() for one in sources]} if sources else {}),
    }
    with alone(folder):
        claim(folder, identity)
        if (folder / MANIFEST).is_file():
            return _report(folder, read_json(folder / MANIFEST), resumed=total)
        done = _Shards(folder)
        texts = read_texts(source, columns, dropped=Counter())  # the copies are counted already
        resumed = _work(step, done, _shards(texts, shard), total, show_progress)
        manifest = {
            **identity,
            **done.counts(copies),
            "before": lineage(source),
            "files": {path.name: sha256_of(path) for path in done.files()},
        }
        write_json(folder / MANIFEST, manifest)
        done.forget()
    return _report(folder, manifest, resumed=resumed)


def _work(step: Step, done: _Shards, shards: Iterator[list[Text]], total: int, show_progress: bool) -> int:

    resumed = 0
    with tqdm(total=total, desc=step.name, unit="texts", disable=not show_progress) as bar:
        for number, texts in enumerate(shards):
            if done.finished(number):
                step.restore(done.kept(number))
                resumed += len(texts)
            else:
                done.write(number, texts, list(step(texts)))
            bar.update(len(texts))
    return resumed


class _Shards:
    """The shards of a step's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, kind: str, number: int) -> Path:
        return self.folder / f"{kind}-{number:05d}.{'json' if kind == 'shard' else 'jsonl'}"

    def finished(self, number: int) -> bool:
        return self.path("shard", number).is_file()

    def kept(self, number: int) -> list[Text]:
        lines = self.path("records", number).read_text(encoding="utf-8").split("\n")  # texts may hold U+2028
        return [Text.from_json(json.loads(line)) for line in lines if line]

    def write(self, number: int, texts: Sequence[Text], outcome: Sequence[Text | Dropped]) -> None:
        """Write a shard; its marker comes last."""
        if len(outcome) != len(texts):
            raise RuntimeError(f"a step gave {len(outcome)} outcomes for {len(texts)} texts")
        kept = [item for item in outcome if isinstance(item, Text)]
        dropped = [item for item in outcome if isinstance(item, Dropped)]
        write_text(self.path("records", number), _lines(kept))
        write_text(self.path("dropped", number), _lines(dropped))
        counts = {"read": len(texts), "kept": len(kept), "dropped": Counter(item.reason for item in dropped)}
        write_text(self.path("shard", number), json.dumps(counts, ensure_ascii=False))

    def counts(self, copies: Counter[str]) -> dict[str, Any]:
        """Return the counts of all shards and of the copies that were dropped while reading."""
        read, kept = copies.total(), 0
        dropped = Counter(copies)
        for path in sorted(self.folder.glob("shard-*.json")):
            counts = read_json(path)
            read, kept = read + counts["read"], kept + counts["kept"]
            dropped.update(counts["dropped"])
        return {"read": read, "kept": kept, "dropped": dict(sorted(dropped.items()))}

    def files(self) -> list[Path]:
        return sorted([*self.folder.glob("records-*.jsonl"), *self.folder.glob("dropped-*.jsonl")])

    def forget(self) -> None:
        """Remove the markers of a finished step."""
        for path in self.folder.glob("shard-*.json"):
            path.unlink()


def _lines(items: Iterable[Text | Dropped]) -> str:
    return "".join(json.dumps(item.to_json(), ensure_ascii=False) + "\n" for item in items)


def _shards(texts: Iterator[Text], size: int) -> Iterator[list[Text]]:
    while shard := list(islice(texts, size)):
        yield shard


def _report(folder: Path, manifest: Mapping[str, Any], *, resumed: int) -> TextsReport:
    return TextsReport(folder, manifest["read"], manifest["kept"], manifest["dropped"], resumed)
