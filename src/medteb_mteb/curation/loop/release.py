"""Step `release`: the model with an index of all documents, in the place of the release before.

A folder of releases holds a link per release, named by its month, to the folder that the step wrote (`model`,
`index`), and the link `current` to the one that is served. Names sort by time.
"""

from __future__ import annotations

import os
import shutil
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import numpy as np
from pydantic import Field

from mar_st.errors import MarError
from mar_st.files import finished_folder
from mar_st.options import Argument, Settings, say
from medteb_mteb.curation.files.layout import write_rows
from medteb_mteb.curation.files.read import read_texts
from medteb_mteb.curation.step import Counts, Input, Model, Runtime, Step, StepSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from medteb_mteb.curation.files.records import Text

CURRENT, INDEX, MODEL = "current", "index", "model"
#: Hidden folder with what is encoded, until the index holds it.
_WORK = ".work"
#: Environment variable with the keys of the server, as `mar serve` reads it; the first one is sent.
KEY_VARIABLE = "MAR_API_KEYS"
Server: TypeAlias = Annotated[str, Field(pattern=r"^https?://")]
SERVER = (
    f"Address of the server to reload, e.g. http://127.0.0.1:8000; its key is the first of ${KEY_VARIABLE}."
)
_SECONDS = 300


class RollbackSettings(Settings):
    """Options of `medteb rollback`."""

    releases: Annotated[Path, Argument()] = Field(description="Folder of releases.")
    server: Server | None = Field(None, description=SERVER)


def rollback(settings: RollbackSettings) -> dict[str, str]:
    """Serve the release before the current one again.

    The link 'current' then names that release, and the server opens it. The next month starts from its model.
    """
    name = served(settings.releases)
    before = earlier(settings.releases, name)
    if before is None:
        raise MarError(f"{settings.releases} has no release before {name}.")
    point(settings.releases / CURRENT, Path(before))
    reload(settings.server)
    return {"before": name, "current": before}


def served(releases: Path) -> str:
    """Return the name of the current release; empty if there is none.

    Raises:
        MarError: The link leads to no release.
    """
    link = releases / CURRENT
    if not link.is_symlink():
        return ""
    if not link.is_dir():
        raise MarError(f"{link} leads nowhere. Point it at a release: ln -sfn NAME {link}")
    return link.readlink().name


def earlier(releases: Path, name: str) -> str | None:
    """Return the name of the newest release before a name, or None."""
    names = (one.name for one in releases.glob("[!.]*/") if one.name != CURRENT)
    return max((one for one in names if one < name), default=None)


def point(link: Path, target: Path) -> None:
    """Let a link lead to a target, at once for all readers."""
    link.parent.mkdir(parents=True, exist_ok=True)
    part = link.with_name(f".{link.name}.part")
    part.unlink(missing_ok=True)
    part.symlink_to(target)
    part.replace(link)


def reload(server: str | None) -> None:
    """Let a server open the current release; nothing without one.

    Raises:
        MarError: It cannot be reached, refuses the key, or cannot open the release.
    """
    if server is None:
        return
    keys = os.environ.get(KEY_VARIABLE, "").replace(",", " ").split()
    address = f"{server.rstrip('/')}/admin/reload"
    request = urllib.request.Request(address, method="POST", data=b"")  # noqa: S310 -- http, see `Server`
    if keys:
        request.add_header("Authorization", f"Bearer {keys[0]}")
    # Without a proxy: the server is this loop's own.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_SECONDS):
            say(f"{server} serves the release")
    except urllib.error.HTTPError as error:
        answer = error.read(1000).decode(errors="replace")
        raise MarError(
            f"{server} did not open the release (status {error.code}: {answer}). "
            f"Its key belongs into ${KEY_VARIABLE}. Run the same command again."
        ) from error
    except OSError as error:
        raise MarError(f"{server} cannot be reached ({error}). Start it, and run this again.") from error


class ReleaseSettings(StepSettings):
    """Options of the step."""

    release: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")] = Field(
        description="Name of the release; names sort by time, so it begins with the month."
    )
    model: Annotated[str, Model()] = Field(description="Model to serve.")
    served: Annotated[str, Model()] = Field(description="Model that is served until now.")
    documents: Annotated[Path, Input("texts")] = Field(description="All documents.")
    gate: Annotated[Path | None, Input("file")] = Field(None, description="Step that compared the two.")
    releases: Path = Field(description="Folder of releases; a new one is made.")
    server: Annotated[Server | None, Runtime()] = Field(None, description=SERVER)


def release(settings: ReleaseSettings) -> Counts:
    """Index the documents with the new model, and let the link 'current' name this release.

    If the model encodes documents as the served one does, only new and changed documents are encoded. The
    server is told to open the release.
    """
    out = settings.out
    point(out / MODEL, Path(os.path.relpath(settings.model, out)))
    texts = {text.id: text for text in read_texts(settings.documents)}
    before = _served_index(settings)
    known = _known(before)
    encoded = {key: text for key, text in texts.items() if known.get(key) != (text.title, text.text)}
    if not (out / INDEX).exists():
        _index(settings, encoded, before, sorted(known.keys() - texts.keys()))
    shutil.rmtree(out / _WORK, ignore_errors=True)
    point(settings.releases / settings.release, Path(os.path.relpath(out, settings.releases)))
    point(settings.releases / CURRENT, Path(settings.release))
    reload(settings.server)
    return Counts(len(texts), details={"encoded": len(encoded), "kept": len(texts) - len(encoded)})


def _served_index(settings: ReleaseSettings) -> Path | None:
    """Return the newest index of the served model if the model's document vectors are the same; else None."""
    from mar_st.index.folder import read_manifest  # lazy: numpy
    from mar_st.model.digest import space_of  # lazy: torch

    served = Path(settings.served).resolve()
    name = earlier(settings.releases, settings.release)
    while name is not None and (settings.releases / name / MODEL).resolve() != served:
        name = earlier(settings.releases, name)
    if name is None:
        return None
    index = (settings.releases / name / INDEX).resolve()
    return index if read_manifest(index)["space"] == space_of(settings.model) else None


def _known(index: Path | None) -> dict[str, tuple[str, str]]:
    """Return title and text of the documents of an index by id; none without an index."""
    from mar_st.index.folder import FolderIndex  # lazy: faiss

    if index is None:
        return {}
    entries = (
        segment.documents[int(row)]
        for segment in FolderIndex.connect(index).segments
        for row in np.flatnonzero(segment.alive)
    )
    return {entry.id: (entry.title, entry.text) for entry in entries}


def _index(
    settings: ReleaseSettings, encoded: Mapping[str, Text], before: Path | None, gone: list[str]
) -> None:
    """Write the index: a new one, or a copy of the one before with the documents that changed."""
    from mar_st.encode.encoding import encode_corpus  # lazy: torch
    from mar_st.index.build import add, build_index, delete  # lazy: faiss

    out, corpus = settings.out, settings.out / _WORK / "corpus.jsonl"
    vectors = out / _WORK / "vectors"
    if encoded:
        rows = ({"_id": text.id, "title": text.title, "text": text.text} for text in encoded.values())
        write_rows(corpus, rows)
        encode_corpus(settings.model, corpus, vectors, say=say)
    if before is None:
        build_index(vectors, out / INDEX, corpus=corpus, say=say)
        return
    with finished_folder(out / INDEX) as part:
        shutil.copytree(before, part, ignore=shutil.ignore_patterns(".*"), dirs_exist_ok=True)
        if gone:
            delete(part, gone)
        if encoded:
            add(part, vectors, corpus=corpus)


RELEASE = Step("release", ReleaseSettings, release, "file", alone=False)
