"""`medteb edition`: show, write, compare and extend editions, the data that tasks are scored on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import yaml
from pydantic import Field

from mar_st.errors import MarError
from mar_st.options import Argument, Settings, application, command
from medteb_mteb.editions import (
    MANIFEST_NAME,
    Edition,
    edition_folder,
    load_edition,
    read_provenance,
    verify,
    write_manifest,
)
from medteb_mteb.folders.layout import PINNED_SETTINGS

if TYPE_CHECKING:
    from medteb_mteb.compare.editions import EditionDiff
    from medteb_mteb.validate.contamination import Contamination


def _as_json(edition: Edition) -> dict[str, Any]:
    return {**edition.to_manifest(), "digest": edition.digest, "path": str(edition.path)}


def _listed(one: dict[str, Any]) -> str:
    counts = ", ".join(f"{count} {kind}" for kind, count in one["counts"].items())
    named = f"{one['task']}  {one['name']} {one['version']}  {one['digest'][:12]}"
    return f"{named}  {counts}  {one['path']}"


class ShowSettings(Settings):
    """Options of `medteb edition show`."""

    edition: Annotated[str, Argument()] = Field(description="Task name or edition folder.")


def show(settings: ShowSettings) -> dict[str, Any]:
    """Verify the files of an edition, and show how it was made.

    Lists digest, licence, counts, sources, judges, rule, agreement, retrievers, anonymiser and leaks, if
    recorded.
    """
    edition = load_edition(edition_folder(settings.edition))
    verify(edition)
    return {**_as_json(edition), "provenance": read_provenance(edition.path)}


def _shown(content: dict[str, Any]) -> str:
    files = [f"{one['sha256'][:12]}  {one['bytes']:>10}  {name}" for name, one in content["files"].items()]
    about = {key: value for key, value in content.items() if key not in ("files", "path")}
    text = yaml.safe_dump(about, allow_unicode=True, sort_keys=False).rstrip()
    return "\n".join([text, f"In {content['path']}, as the manifest says:", *files])


class WriteSettings(Settings):
    """Options of `medteb edition write`."""

    folder: Annotated[Path, Argument()] = Field(description="Folder of the data files.")
    licence: str = Field(description="Licence of the data, e.g. cc-by-4.0.")
    task: str | None = Field(None, description="Task name; default: the card's, or the folder's name.")
    edition: str = Field("local", description="Name of the edition.")
    version: str = Field("1", description="Version of the edition.")


def write(settings: WriteSettings) -> dict[str, Any]:
    """Check a folder's data, and write its manifest with the digest of every data file."""
    from medteb_mteb.folders.content import read_folder  # lazy: pyarrow

    folder = settings.folder
    # The extra fields of an earlier manifest are kept; its files are expected to have changed.
    kept: dict[str, Any] = load_edition(folder).extra if (folder / MANIFEST_NAME).is_file() else {}
    content = read_folder(folder, pinned=False)
    card = content.layout.settings
    pinned = card.model_dump(include=set(PINNED_SETTINGS), exclude_unset=True)
    counts = {split: len(rows) for split, rows in content.records.items()}
    if content.retrieval is not None:
        data = content.retrieval
        judged = sum(len(documents) for documents in data.qrels.values())
        counts = {"queries": len(data.queries), "corpus": len(data.corpus), "qrels": judged}
    if not counts:
        raise MarError(f"{folder} holds no data.")
    edition = write_manifest(
        folder,
        task=settings.task or card.name or folder.resolve().name,
        name=settings.edition,
        version=settings.version,
        licence=settings.licence,
        counts=counts,
        **{**kept, **pinned},
    )
    return _as_json(edition)


class DiffSettings(Settings):
    """Options of `medteb edition diff`."""

    first: Annotated[str, Argument()] = Field(description="Task name, edition folder or data folder.")
    second: Annotated[str, Argument()] = Field(description="The same of the edition to compare with.")
    results: Annotated[tuple[Path, ...], Argument()] = Field(
        (), description="Output folders of 'medteb run' with results on both."
    )


def diff(settings: DiffSettings) -> EditionDiff:
    """Compare two editions, or two versions of one.

    Counts the queries, documents and labels that were added, removed and changed (a text under the same id,
    a grade of the same pair). With results, lists the scores of every model on both, and how far the two
    rankings of the models agree (Kendall's tau). `--json` has all ids.
    """
    from medteb_mteb.compare.editions import compare_editions  # lazy: numpy

    first, second = map(edition_folder, (settings.first, settings.second))
    return compare_editions(first, second, settings.results)


def _page(found: EditionDiff | Contamination) -> str:
    from medteb_mteb.report.page import to_markdown  # lazy: numpy

    return to_markdown(found.page()).rstrip()


def edition_app() -> Any:
    """Return the group of commands."""
    from medteb_mteb.curation.edition import append as slices  # lazy: numpy
    from medteb_mteb.curation.edition.extend import ExtendSettings, as_text, extend  # lazy: numpy
    from medteb_mteb.validate.contamination import ContaminationSettings, contamination  # lazy: numpy

    app = application("edition", "Manage editions: the data that tasks are scored on.")
    command(app, "show", ShowSettings, show, show=_shown)
    command(app, "write", WriteSettings, write, show=_listed)
    command(app, "diff", DiffSettings, diff, show=_page)
    command(app, "extend", ExtendSettings, extend, show=as_text)
    command(app, "append", slices.AppendSettings, slices.append, show=slices.as_text)
    command(app, "commit", slices.CommitSettings, slices.commit, show=slices.as_text)
    command(app, "reveal", slices.RevealSettings, slices.reveal, show=slices.as_text)
    command(app, "contamination", ContaminationSettings, contamination, show=_page)
    return app
