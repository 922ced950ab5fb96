"""Slices of live editions: new months are added, and what was scored before stays as it is."""

from __future__ import annotations

import re
import secrets
import shutil
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import yaml
from pydantic import Field

from mar_st.errors import MarError
from mar_st.files import counted, finished_folder, locked, replace_folder, write_text
from mar_st.options import Argument, Settings
from medteb_mteb.curation.edition.write import write_provenance
from medteb_mteb.curation.files.layout import write_disputed, write_qrels, write_texts
from medteb_mteb.curation.files.read import read_texts
from medteb_mteb.curation.files.records import Text
from medteb_mteb.curation.texts.near_duplicates import near_duplicates
from medteb_mteb.editions import load_edition, read_provenance, verify, write_manifest
from medteb_mteb.folders.layout import PINNED_SETTINGS, FolderError
from medteb_mteb.folders.live import Live, Month, commitment_to, is_live, read_live

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from medteb_mteb.editions import Edition
    from medteb_mteb.folders.content import RetrievalData, TaskFolder

#: File with the nonce of a commitment; hidden, so it is not part of the edition.
NONCE = ".nonce"
#: Why queries are left out.
NEAR_COPY, UNANSWERED = "near copies of queries of earlier slices", "without a relevant document"
#: Number of ids that an error lists.
_SHOWN = 5


class SliceSettings(Settings):
    """Options of the commands that make slices."""

    live: Annotated[Path, Argument()] = Field(description="Live edition; a new folder is made.")
    data: Annotated[Path, Argument()] = Field(
        description="Folder of retrieval data, such as MedTEBRetrieval of a build."
    )
    licence: str | None = Field(None, description="Licence of the data; default: what the folder states.")


class AppendSettings(SliceSettings):
    """Options of `medteb edition append`."""

    slice: Month | None = Field(
        None, description="Month that all data belong to, e.g. 2026-11; default: by the dates of the queries."
    )


class CommitSettings(SliceSettings):
    """Options of `medteb edition commit`."""

    out: Annotated[Path, Argument()] = Field(description="Private folder to write the slice to.")
    slice: Month = Field(description="Month that the data belong to, e.g. 2026-12.")


class RevealSettings(Settings):
    """Options of `medteb edition reveal`."""

    live: Annotated[Path, Argument()] = Field(description="Live edition with the commitment.")
    private: Annotated[Path, Argument()] = Field(description="Folder that 'medteb edition commit' wrote.")


@dataclass
class _Slice:
    """Content of a slice.

    Attributes:
        month: Its month.
        queries: Ids of its queries, in their order.
        corpus: Ids of its documents.
        qrels: Grades by query and document.
        dropped: Ids of the queries that were left out, by reason.
    """

    month: str
    queries: list[str]
    corpus: set[str]
    qrels: dict[str, dict[str, int]]
    dropped: dict[str, list[str]] = field(default_factory=dict)

    def drop(self, queries: Iterable[str], reason: str) -> None:
        gone = list(queries)
        if gone:
            self.dropped[reason] = gone
            self.queries = [query for query in self.queries if query not in set(gone)]


class _Maker:
    """Makes slices of data, each with what came before it in view.

    Args:
        settings: Options of the command.

    Attributes:
        live: The live edition, as it is while no other process can change it.
        problems: Why the data are refused.

    Raises:
        MarError: The data are not those of a retrieval task, or state no licence.
    """

    live: Live

    def __init__(self, settings: SliceSettings) -> None:
        from medteb_mteb.folders.content import read_folder  # lazy: pyarrow

        self.folder: TaskFolder = read_folder(settings.data)
        data, licence = self.folder.retrieval, settings.licence or self.folder.layout.licence
        if data is None or data.top_ranked is not None:
            raise MarError(f"{settings.data} is of type {self.folder.type}; a slice holds data of retrieval.")
        if licence is None:
            raise MarError(f"{settings.data} states no licence. Give it by --licence.")
        self.data: RetrievalData = data
        self.licence = licence
        self.texts = {row["id"]: row["text"] for row in data.queries}
        self.problems: list[str] = []
        self._new: dict[str, str] = {}

    @contextmanager
    def locked(self, live: Path, beside: Path) -> Iterator[Path]:
        """Open a live edition, which is made if it is missing, and provide a folder for unfinished slices.

        Args:
            live: The live edition.
            beside: Path in the same folder as the place of the slices.
        """
        with locked(live):
            self.live = read_live(live) if is_live(live) else Live(live)
            beside.parent.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(dir=beside.parent, prefix=f".{beside.name}-") as scratch:
                yield Path(scratch)

    def raise_if_any(self) -> None:
        """Raise the problems found so far, if there are any."""
        if self.problems:
            raise FolderError(self.folder.layout.path, self.problems)

    def months(self) -> dict[str, list[str]]:
        """Return the queries of each month by their dates, and note those without one as a problem."""
        months: dict[str, list[str]] = {}
        for query in self.texts:
            months.setdefault(self.data.query_dates.get(query, "")[:7], []).append(query)
        if undated := months.pop("", []):
            number, some = counted(len(undated), "query", "queries"), ", ".join(undated[:_SHOWN])
            self.problems.append(f"{number} without a date ({some}); give the month of all by --slice")
        return dict(sorted(months.items()))

    def make(self, out: Path, month: str, queries: Sequence[str], *, dated: bool) -> tuple[_Slice, Edition]:
        """Write a slice to a new folder; problems are noted.

        Args:
            out: The folder.
            month: The month.
            queries: Ids of its queries.
            dated: Leave out documents of later months.
        """
        one = self._chosen(month, queries, dated=dated)
        self._compare(one)
        if not one.queries:
            why = ", ".join(f"{len(ids)} {reason}" for reason, ids in one.dropped.items())
            self.problems.append(f"no query is left for {month}: {why}")
        return one, self._write(one, out)

    def _chosen(self, month: str, queries: Sequence[str], *, dated: bool) -> _Slice:
        dates = self.data.corpus_dates if dated else {}
        corpus = {row["id"] for row in self.data.corpus if dates.get(row["id"], "")[:7] <= month}
        qrels = {
            query: {d: grade for d, grade in self.data.qrels[query].items() if d in corpus}
            for query in queries
        }
        one = _Slice(month, list(queries), corpus, qrels)
        one.drop((q for q in queries if not any(grade > 0 for grade in qrels[q].values())), UNANSWERED)
        return one

    def _compare(self, one: _Slice) -> None:
        """Leave out near copies of queries of the slices that were there before this one."""
        before = takewhile(lambda entry: entry.slice != one.month, self.live.log)
        earlier = {
            text.id: text.full
            for entry in before
            if entry.digest
            for text in read_texts(self.live.folder(entry.slice) / "queries.jsonl")
        }
        if one.month not in self.live.slices:
            earlier |= self._new
        texts = [self.texts[query] for query in one.queries]
        rows = {row for row, _, _ in near_duplicates(texts, list(earlier.values()))}
        one.drop([one.queries[row] for row in sorted(rows)], NEAR_COPY)
        if taken := [query for query in one.queries if query in earlier]:
            some = ", ".join(taken[:_SHOWN])
            self.problems.append(
                f"{one.month}: other queries of earlier slices have the ids {some}; rename these"
            )
        if one.month not in self.live.slices:
            self._new |= {query: self.texts[query] for query in one.queries}

    def _write(self, one: _Slice, out: Path) -> Edition:
        data, chosen = self.data, set(one.queries)
        queries = (
            Text(row["id"], row["text"], date=data.query_dates.get(row["id"], ""))
            for row in data.queries
            if row["id"] in chosen
        )
        documents = (
            Text(row["id"], row["text"], row["title"], date=data.corpus_dates.get(row["id"], ""))
            for row in data.corpus
            if row["id"] in one.corpus
        )
        write_texts(out / "corpus.jsonl", documents, titles=True)
        write_texts(out / "queries.jsonl", queries, titles=False)
        positives = {q: {d: grade for d, grade in one.qrels[q].items() if grade > 0} for q in one.queries}
        negatives = {q: sorted(data.judged.negatives.get(q, frozenset()) & one.corpus) for q in one.queries}
        write_qrels(out, {q: {**positives[q], **dict.fromkeys(negatives[q], 0)} for q in one.queries})
        disputed = {q: sorted(data.judged.disputed.get(q, frozenset()) & one.corpus) for q in one.queries}
        write_disputed(out, disputed)
        settings = self.folder.layout.settings
        # The name that the first slice got, so that the folder may be renamed.
        first = next(iter(self.live.slices), None)
        name = load_edition(self.live.folder(first)).name if first else self.live.path.resolve().name
        write_text(out / "README.md", self._card(name, one.month))
        if provenance := read_provenance(self.folder.layout.path):
            write_provenance(out, provenance)
        return write_manifest(
            out,
            task=f"{name}-{one.month}",
            name=name,
            version=one.month,
            licence=self.licence,
            counts={
                "queries": len(one.queries),
                "corpus": len(one.corpus),
                "qrels": sum(map(len, positives.values())),
            },
            **settings.model_dump(include={*PINNED_SETTINGS, "languages"}, exclude_defaults=True),
        )

    def _card(self, name: str, month: str) -> str:
        """Return a README.md, which is not part of the digest, with what the Hub and mteb read of it."""
        header = {"language": self.folder.layout.hub_languages, "license": self.licence}
        text = yaml.safe_dump({key: value for key, value in header.items() if value}, allow_unicode=True)
        return f"---\n{text}---\n\n# {name}, {month}\n"


def append(settings: AppendSettings) -> dict[str, Any]:
    """Add data to a live edition as the slices of new months.

    Each slice is an edition of its own, so nothing that was scored before changes. A query belongs to the
    month of its date, and is searched for in the documents without a date or with one up to the end of that
    month; with --slice, all data belong to one month. Near copies of queries of earlier slices are left out
    and counted. Months that are there with the same data are skipped, so the same command continues an
    interrupted run; with other data they are refused.
    """
    maker = _Maker(settings)
    months = maker.months() if settings.slice is None else {settings.slice: list(maker.texts)}
    made: list[dict[str, Any]] = []
    with maker.locked(settings.live, settings.live / "slice") as scratch:
        live = maker.live
        for month, queries in months.items():
            if month in live.sealed:
                maker.problems.append(f"{month} is committed to; publish it by 'medteb edition reveal'")
                continue
            one, edition = maker.make(scratch / month, month, queries, dated=settings.slice is None)
            there = live.slices.get(month)
            if there is not None and load_edition(live.folder(month)).files != edition.files:
                maker.problems.append(
                    f"{month} is there with other data, and what was scored must not change; leave it out"
                )
            made.append({**_described(one, edition), "new": there is None})
        maker.raise_if_any()
        for slice_ in made:
            if slice_["new"]:
                replace_folder(scratch / slice_["slice"], live.folder(slice_["slice"]))
                live = live.added(**{key: slice_[key] for key in ("slice", "digest", "counts", "dropped")})
    return {"live": str(settings.live), "head": live.head, "slices": made}


def commit(settings: CommitSettings) -> dict[str, Any]:
    """Commit to a slice without publishing its texts.

    Writes the slice with a random nonce to a private folder, and only the SHA-256 of nonce and digest, with
    the counts, to the log of the live edition. Keep the folder: 'medteb edition reveal' publishes it.
    """
    out, month = settings.out, settings.slice
    if out.resolve().is_relative_to(settings.live.resolve()):
        raise MarError(f"{out} is in the live edition, which is published. Give a private folder.")
    maker = _Maker(settings)
    with maker.locked(settings.live, out) as scratch:
        live = maker.live
        one, edition = maker.make(scratch / month, month, list(maker.texts), dated=False)
        if month in live.slices:
            maker.problems.append(f"{month} is published already")
        maker.raise_if_any()
        if not out.exists():
            write_text(edition.path / NONCE, secrets.token_hex(32), private=True)
            replace_folder(edition.path, out)
        elif load_edition(out).digest != edition.digest:
            raise MarError(f"{out} is another slice. Give another folder.")
        described = _described(one, edition)
        described["commitment"] = commitment_to(edition.digest, _nonce(out))
        there = live.sealed.get(month)
        if there is not None and there.commitment != described["commitment"]:
            raise MarError(f"{settings.live} has another commitment for {month}; only that can be revealed.")
        if there is None:
            live = live.added(**{key: described[key] for key in ("slice", "commitment", "counts", "dropped")})
    return {"live": str(settings.live), "head": live.head, "slices": [{**described, "new": there is None}]}


def reveal(settings: RevealSettings) -> dict[str, Any]:
    """Publish the texts of a slice that was committed to.

    Proves by nonce and digest that they are those of the commitment, and adds them to the live edition;
    others are refused. The nonce is published in the log, so everyone can repeat the check.
    """
    private = settings.private
    edition, nonce = load_edition(private), _nonce(private)
    verify(edition)
    value = commitment_to(edition.digest, nonce)
    with locked(settings.live):
        live = read_live(settings.live)
        entry = next((one for one in live.log if one.commitment == value), None)
        if entry is None:
            raise MarError(
                f"{settings.live} has no commitment to {private}: its texts or its nonce are others."
            )
        described = {"slice": entry.slice, "digest": edition.digest, "counts": edition.counts}
        new = entry.slice in live.sealed
        if new:
            with finished_folder(live.folder(entry.slice)) as part:
                shutil.copytree(private, part, ignore=shutil.ignore_patterns(".*"), dirs_exist_ok=True)
            live = live.added(**described, nonce=nonce)
    slices = [{**described, "commitment": value, "dropped": {}, "new": new}]
    return {"live": str(settings.live), "head": live.head, "slices": slices}


def _described(one: _Slice, edition: Edition) -> dict[str, Any]:
    return {
        "slice": one.month,
        "digest": edition.digest,
        "counts": edition.counts,
        "dropped": {reason: len(ids) for reason, ids in one.dropped.items()},
    }


def _nonce(private: Path) -> str:
    """Return the nonce of a commitment, 64 hex digits."""
    path = private / NONCE
    nonce = path.read_text(encoding="utf-8", errors="replace").strip() if path.is_file() else ""
    if not re.fullmatch("[0-9a-f]{64}", nonce):
        raise MarError(f"{path} holds no nonce. Give the folder that 'medteb edition commit' wrote.")
    return nonce


def as_text(report: Mapping[str, Any]) -> str:
    """Return a line per slice, and the digest of the log."""
    lines = []
    for one in report["slices"]:
        numbers = [f"{number:,} {kind}" for kind, number in one["counts"].items()]
        numbers += [f"{number:,} left out: {reason}" for reason, number in one["dropped"].items()]
        state = "" if one["new"] else " (there before)"
        lines.append(f"{one['slice']}  {one['digest'][:12]}  {', '.join(numbers)}{state}")
        lines += [f"commitment {one['commitment']}"] if "commitment" in one else []
    return "\n".join([*lines, f"{report['live']}, log {report['head']}"])
