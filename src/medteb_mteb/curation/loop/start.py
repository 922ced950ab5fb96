"""Steps `start`, what earlier months have left, and `append`: the test of a month becomes a slice.

All later steps read from `start` what was there when the month began, so a month that is continued or
repeated sees the same, whatever was released since.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from mar_st.errors import MarError
from mar_st.files import finished, read_record, write_json
from mar_st.model.names import model_folder
from medteb_mteb.curation.edition.append import AppendSettings
from medteb_mteb.curation.edition.append import append as append_slices
from medteb_mteb.curation.files.layout import write_rows
from medteb_mteb.curation.files.read import read_texts
from medteb_mteb.curation.lineage import STEP_FILE
from medteb_mteb.curation.loop.release import earlier, point, served
from medteb_mteb.curation.step import Counts, Input, Model, Step, StepSettings, tokens_of
from medteb_mteb.folders.live import Month, is_live, read_live

if TYPE_CHECKING:
    from collections.abc import Iterable

    from medteb_mteb.curation.files.records import Text

#: Folders that a month leaves, by the names of its steps: documents, and training triples.
DOCUMENTS, TRIPLES = "documents", "assemble/train/triples.jsonl"


class MonthSettings(StepSettings):
    """Options of a step of a month."""

    month: Month = Field(description="The month, e.g. 2026-11.")


class StartSettings(MonthSettings):
    """Options of the step."""

    documents: Annotated[Path, Input("texts")] = Field(description="New and changed documents of the month.")
    months: Path = Field(description="Folder of the builds of all months.")
    live: Path = Field(description="Folder of the slices of all months.")
    releases: Path = Field(description="Folder of releases.")
    first: Annotated[str, Model()] = Field(description="Model to begin with, before the first release.")


def start(settings: StartSettings) -> Counts:
    """Gather what earlier months have left.

    Writes `documents` (all known documents, the month's replacing those of the same id), `train` (the
    training triples of earlier months), `tests` (the queries of earlier slices), and `model`, a link to the
    served model, and `first`, one to the model of the beginning.
    """
    out, month = settings.out, settings.month
    before = sorted(one for one in settings.months.glob("*/") if one.name < month)
    folders = [folder for one in before if _finished(folder := one / DOCUMENTS)]
    known = {text.id: text for folder in folders[-1:] for text in read_texts(folder)}
    old = len(known)
    known |= {text.id: text for text in read_texts(settings.documents)}
    _write(out / "documents", known.values())
    slices = slices_before(settings.live, month)
    tests = [text for folder in slices for text in read_texts(folder / "queries.jsonl")]
    _write(out / "tests", tests)
    triples = [file for one in before if _finished((file := one / TRIPLES).parents[1])]
    with finished(out / "train" / "triples.jsonl") as part, part.open("wb") as stream:
        for file in triples:
            stream.write(file.read_bytes())
    name, model = _served(settings)
    point(out / "model", model)
    point(out / "first", _first(settings))
    details = {
        "served": name,
        "known documents": old,
        "new documents": len(known) - old,
        "months with training data": len(triples),
        "earlier slices": len(slices),
    }
    return Counts(len(known), sum(tokens_of(text.full) for text in known.values()), details=details)


def slices_before(live: Path, month: str) -> list[Path]:
    """Return the folders of the slices of earlier months; none if there is no live edition yet."""
    if not is_live(live):
        return []
    edition = read_live(live)
    return [edition.folder(one) for one in edition.slices if one < month]


def _finished(folder: Path) -> bool:
    return bool((read_record(folder / STEP_FILE) or {}).get("finished"))


def _write(folder: Path, texts: Iterable[Text]) -> None:
    """Write texts as a step does; there may be none."""
    write_rows(folder / "records-00000.jsonl", (text.to_json() for text in texts))


def _served(settings: StartSettings) -> tuple[str, Path]:
    """Return name and folder of the model that is served when the month begins.

    If the month itself, or a later one, is released already, it is the release before the month.
    """
    name: str | None = served(settings.releases)
    if name and name >= settings.month:
        name = earlier(settings.releases, settings.month)
    if name:
        return name, (settings.releases / name / "model").resolve()
    return settings.first, _first(settings)


def _first(settings: StartSettings) -> Path:
    folder = model_folder(settings.first)
    if folder is None:
        raise MarError(f"first: there is no model {settings.first} on this machine. Give its folder.")
    return folder.resolve()


START = Step("start", StartSettings, start, "texts", result_file="documents", alone=False)


class AppendStepSettings(MonthSettings):
    """Options of the step."""

    data: Annotated[Path, Input("editions")] = Field(description="Retrieval edition of the month.")
    live: Path = Field(description="Folder of the slices of all months; a new one is made.")


def append(settings: AppendStepSettings) -> Counts:
    """Append an edition to a live edition as the slice of the month, and write what was appended."""
    report = append_slices(AppendSettings(live=settings.live, data=settings.data, slice=settings.month))
    (slice_,) = report["slices"]
    entry = {key: slice_[key] for key in ("slice", "digest", "counts", "dropped")}
    write_json(settings.out / "slice.json", entry)
    queries = slice_["counts"]["queries"]
    return Counts(queries, queries=queries, details=entry)


APPEND = Step("append", AppendStepSettings, append, "file", result_file="slice.json", alone=False)
