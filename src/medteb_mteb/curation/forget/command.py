"""`medteb forget`: plan, removal, records that follow, proof.

The plan is written to a private file in the first folder before anything is changed, since it holds the texts
to look for; it is deleted once the proof has passed. Each part of the work can be done again, so the same
command finishes an interrupted run.
"""

from __future__ import annotations

import re
from collections import Counter
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, Field

from mar_st.data.rows import read_rows
from mar_st.errors import MarError
from mar_st.files import counted, locked, read_json, write_text
from mar_st.options import Argument, Settings, Switch, say
from mar_st.text.values import as_grade, as_id
from medteb_mteb.curation.edition.extend import next_version, write_newer
from medteb_mteb.curation.forget.files import FOLDERS, WORK_FILE, about, texts_of, units
from medteb_mteb.curation.forget.search import leftovers
from medteb_mteb.curation.forget.texts import Texts, collect
from medteb_mteb.curation.lineage import STEP_FILE
from medteb_mteb.curation.llm.journal import Journal
from medteb_mteb.curation.step import accept, unchanged
from medteb_mteb.editions import MANIFEST_NAME, load_edition, verify
from medteb_mteb.folders.live import Live, is_live, read_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from medteb_mteb.editions import Edition

#: Row of the table of data in a model card.
_CARD_DATA = re.compile(r"^\| [^|]* \| `([^`|]+)` \| `[0-9a-f]+` \|$", re.MULTILINE)


class ForgetSettings(Settings):
    """Options of `medteb forget`."""

    ids: Annotated[tuple[str, ...], Argument("ID")] = Field(
        (), description="Ids of documents and queries to forget."
    )
    folders: Annotated[tuple[Path, ...], Switch("--in")] = Field(
        min_length=1, description="Folder to remove them from, with all below it; may be repeated."
    )
    ids_file: Annotated[Path | None, Switch("--ids")] = Field(None, description="File of ids, one per line.")
    every: bool = Field(False, description="Forget all texts of an id, also if they have nothing in common.")
    dry_run: bool = Field(False, description="Print what would be removed, and change nothing.")


class Plan(BaseModel):
    """What is to be removed, and the records that have to follow.

    Attributes:
        texts: The texts.
        unanswered: Queries that lose their last relevant document, by data folder; they go from it, too.
        places: Number of removals by path, with the kind.
        removed: Number of removed rows by table, of the intact editions among them, by folder.
        digests: Digests of these editions.
        steps: Folders of finished steps, in the order in which they ran.
        vectors: Folders of vectors that belong to their corpus.
        received: Models that were sent a text, with the number of answers and the days.
        models: Models that were trained on a changed file.
    """

    texts: Texts
    unanswered: dict[str, list[str]]
    places: dict[str, tuple[str, int]] = Field(default_factory=dict)
    removed: dict[str, dict[str, int]] = Field(default_factory=dict)
    digests: dict[str, str] = Field(default_factory=dict)
    steps: list[str] = Field(default_factory=list)
    vectors: list[str] = Field(default_factory=list)
    received: list[str] = Field(default_factory=list)
    models: list[str] = Field(default_factory=list)

    def by_place(self) -> Callable[[Path], Texts]:
        """Return a function that returns what goes from a file or folder: the texts, and `unanswered`."""
        inside = {
            Path(folder): self.texts.model_copy(update={"ids": {*self.texts.ids, *some}})
            for folder, some in self.unanswered.items()
        }
        return lambda path: next(
            (texts for folder, texts in inside.items() if path.is_relative_to(folder)), self.texts
        )


def forget(settings: ForgetSettings) -> dict[str, Any]:
    """Remove the texts of a person from everything below some folders, and prove it.

    Removes documents and queries by their ids, and copies of their texts, from data, editions, builds,
    training data, journals, vectors, indexes, runs and pages. Then all bytes are searched for the texts; the
    exit code is 1 if a file still holds one. Models that were trained on a text or were sent one are named,
    since no file can take that back. The same command finishes an interrupted run.
    """
    roots, ids = _roots(settings.folders), _ids(settings)
    with ExitStack() as stack:
        for root in roots:
            if not any(kind.claims(root) for kind in FOLDERS):  # these lock themselves
                stack.enter_context(locked(root))
        plan = _plan(roots, ids, every=settings.every)
        report = {
            "places": {path: f"{kind}: {number}" for path, (kind, number) in plan.places.items()},
            "notes": plan.texts.notes,
            "received": plan.received,
            "models": plan.models,
        }
        if settings.dry_run:
            return {**report, "dry run": True}
        work = roots[0] / WORK_FILE
        write_text(work, plan.model_dump_json(), private=True)
        texts_for = plan.by_place()
        for path, kind in units(roots):
            # What cannot be read is reported if it holds one of the texts.
            with nullcontext() if str(path) in plan.places else suppress(MarError):
                if kind.remove(path, texts_for(path), False):
                    say(f"{path}: {kind.name}")
        _follow(plan)
        say("searching all bytes")
        found = leftovers(roots, plan.texts)
        if not found:
            work.unlink()
    return {**report, "left": found, "failed": bool(found)}


def _roots(folders: Sequence[Path]) -> list[Path]:
    """Return the folders, without those that are in another one."""
    missing = next((folder for folder in folders if not folder.is_dir()), None)
    if missing is not None:
        raise MarError(f"There is no folder {missing}.")
    real = list(dict.fromkeys(folder.resolve() for folder in folders))
    return [one for one in real if not any(one != other and one.is_relative_to(other) for other in real)]


def _ids(settings: ForgetSettings) -> set[str]:
    lines = settings.ids_file.read_text(encoding="utf-8-sig").splitlines() if settings.ids_file else ()
    ids = {one.strip() for one in (*settings.ids, *lines)} - {""}
    if not ids:
        raise MarError("No id is given. Name ids of documents or queries, or a file of them by --ids.")
    return ids


# -- plan --


def _plan(roots: Sequence[Path], ids: set[str], *, every: bool) -> Plan:
    """Return the plan of an interrupted run, or look for the texts and where they are."""
    work = roots[0] / WORK_FILE
    if work.is_file():
        plan = Plan.model_validate(read_json(work))
        if plan.texts.ids != ids:
            names = ", ".join(sorted(plan.texts.ids)[:9])
            raise MarError(f"{work} is of an unfinished 'medteb forget' of {names}. Run it to its end first.")
        return plan
    say(f"looking for the texts of {counted(len(ids), 'id')}")
    texts = collect(ids, lambda: texts_of(roots), every=every)
    if not texts.values:
        raise MarError(f"No text below {', '.join(map(str, roots))} has one of these ids.")
    plan = Plan(texts=texts, unanswered=dict(_unanswered(roots, ids)))
    for folder, queries in plan.unanswered.items():
        some = ", ".join(queries[:9])
        texts.notes.append(f"{folder} also loses queries without another relevant document: {some}")
    _find_places(roots, plan)
    _find_records(roots, plan)
    return plan


def _unanswered(roots: Sequence[Path], ids: set[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield data folders with the queries that lose their last relevant document."""
    for folder in (path.parent for root in roots for path in sorted(root.rglob("qrels")) if path.is_dir()):
        positives: dict[str, set[str]] = {}
        for file in sorted((folder / "qrels").iterdir()):
            with suppress(MarError):  # no table; reported if it holds one of the texts
                for row in read_rows(file):
                    query, document = (as_id(row.values.get(key)) for key in ("query-id", "corpus-id"))
                    if query and document and (as_grade(row.values.get("score", 1)) or 0) > 0:
                        positives.setdefault(query, set()).add(document)
        lost = sorted(query for query, some in positives.items() if some <= ids and query not in ids)
        if lost:
            yield str(folder), lost


def _find_places(roots: Sequence[Path], plan: Plan) -> None:
    """Find what is to be removed, from which editions, and who was sent it."""
    texts_for, editions = plan.by_place(), set(_intact_editions(roots))
    received: Counter[tuple[str, str, str]] = Counter()
    for path, kind in units(roots):
        try:
            count = kind.remove(path, texts_for(path), True)
        except MarError:  # reported if it holds one of the texts
            continue
        if count:
            plan.places[str(path)] = (kind.name, count)
            for folder in editions.intersection(path.parents):
                removed = plan.removed.setdefault(str(folder), {})
                name = path.relative_to(folder).parts[0].partition(".")[0]
                removed[name] = removed.get(name, 0) + count
        if kind.name == "journal":
            with Journal(path) as journal:
                for row in about(journal, plan.texts):
                    select = "SELECT llm, model, day FROM answers WHERE id = ?"
                    received[journal.db.execute(select, (row,)).fetchone()] += 1
    plan.received = [
        f"{llm}{f' ({model})' * bool(model)}: {counted(number, 'answer')} on {day}"
        for (llm, model, day), number in sorted(received.items())
    ]


def _intact_editions(roots: Sequence[Path]) -> Iterator[Path]:
    """Yield the folders of the editions whose files are those of the manifest."""
    for folder in (path.parent for root in roots for path in root.rglob(MANIFEST_NAME)):
        with suppress(MarError):
            verify(load_edition(folder))
            yield folder


def _find_records(roots: Sequence[Path], plan: Plan) -> None:
    """Find the steps and folders of vectors that are finished now and have to stay so, and trained models."""
    plan.digests = {folder: load_edition(folder).digest for folder in plan.removed}
    steps = [path.parent for root in roots for path in root.rglob(STEP_FILE)]
    order = {folder: len(read_json(folder / STEP_FILE)["before"]) for folder in steps if unchanged(folder)}
    plan.steps = [str(folder) for folder in sorted(order, key=lambda folder: order[folder])]
    folders = [path for path, (kind, _) in plan.places.items() if kind == "vectors"]
    plan.vectors = [path for path in folders if (both := _corpus_of(path)) and both[0] == both[1]]
    for card in (card for root in roots for card in sorted(root.rglob("README.md"))):
        named = _CARD_DATA.findall(card.read_text(encoding="utf-8", errors="replace"))
        ends = ["/" + "/".join(Path(one).parts[-2:]) + "/" for one in named]
        if any(end in f"{path}/" for end in ends for path in plan.places):
            plan.models.append(str(card.parent))


def _corpus_of(path: str) -> tuple[str, str] | None:
    """Return the digest of the corpus that was encoded, and that of the corpus as it is now; None without."""
    from mar_st.data.corpus import scan_corpus  # lazy: datasets
    from mar_st.encode.folder import VectorFolder  # lazy: pyarrow

    try:
        corpus = VectorFolder.open(path).manifest["corpus"]
        return corpus["digest"], scan_corpus(corpus["path"] or "", 1, show_progress=False).digest
    except MarError:  # it is not there any more, or all documents are gone
        return None


# -- records --


def _follow(plan: Plan) -> None:
    """Let manifests, logs, corpora of vectors and records of steps follow their changed files."""
    from mar_st.encode.folder import set_corpus  # lazy: pyarrow

    for name, removed in plan.removed.items():
        edition = load_edition(name)
        if edition.digest == plan.digests[name]:
            edition = _next_edition(edition, removed)
        _log(edition, removed)
    for name in plan.vectors:
        if (digests := _corpus_of(name)) is not None:
            set_corpus(Path(name), digests[1])
    for _ in plan.steps:  # a step may come after one whose model it uses
        for folder in (folder for name in plan.steps if not unchanged(folder := Path(name))):
            accept(folder)


def _next_edition(edition: Edition, removed: Mapping[str, int]) -> Edition:
    """Write the manifest of an edition's next version, whose history counts what was removed."""
    counts = {name: number - removed.get(name, 0) for name, number in edition.counts.items()}
    card = edition.path / "README.md"
    if card.is_file():
        text = card.read_text(encoding="utf-8")
        for name, number in edition.counts.items():
            text = text.replace(f"| {name} | {number} |", f"| {name} | {counts[name]} |")
        write_text(card, text)
    version = next_version(edition.version)
    return write_newer(edition, edition.path, version, counts, {"forgotten": dict(removed)})


def _log(edition: Edition, removed: Mapping[str, int]) -> None:
    """Add the new digest of a slice to the log of its live edition."""
    folder = edition.path
    if not is_live(folder.parent):
        return
    live = Live(folder.parent, read_log(folder.parent))
    known = live.slices.get(folder.name)
    if known is not None and known.digest != edition.digest:
        live.added(slice=folder.name, digest=edition.digest, counts=edition.counts, forgotten=removed)


def as_text(report: Mapping[str, Any]) -> str:
    """Return what was removed, what deleting cannot undo, and what is left."""
    verb = "would remove" if report.get("dry run") else "removed"
    lines = [f"{verb} {what} in {path}" for path, what in report["places"].items()]
    lines += [f"note: {note}" for note in report["notes"]]
    lines += [f"sent to {one}: ask its provider to delete it" for one in report["received"]]
    lines += [f"trained on a text: {one}; train it again, or delete it" for one in report["models"]]
    if report.get("dry run"):
        return "\n".join(lines)
    if any(what.startswith("page") for what in report["places"].values()):
        lines.append("pages were deleted: write their site again by 'medteb site'")
    lines += [f"left: {path} {why}" for path, why in report["left"].items()]
    end = (
        "clean these files, and run the same command again" if report["left"] else "none of the texts is left"
    )
    return "\n".join([*lines, end])
