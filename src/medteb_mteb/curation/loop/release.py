"""Step `release`: the model with an index of all documents, in the place of the release before."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from mar_st.files import finished, finished_folder
from mar_st.options import say
from medteb_mteb.curation.files.read import read_texts
from medteb_mteb.curation.loop.releases import CURRENT, SERVER, Server, earlier, point, reload
from medteb_mteb.curation.step import Counts, Estimate, Input, Model, Runtime, Step, StepSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from medteb_mteb.curation.files.records import Text

INDEX, MODEL = "index", "model"
#: Hidden folder with what is encoded, until the index holds it.
_WORK = ".work"


class ReleaseSettings(StepSettings):
    """Options of the step."""

    release: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")] = Field(
        description="Name of the release; names sort by time, so it begins with the month."
    )
    model: Annotated[str, Model()] = Field(description="Model to serve.")
    served: Annotated[str, Model()] = Field(description="Model that is served until now.")
    gate: Annotated[Path | None, Input("file")] = Field(None, description="Step that compared the two.")
    documents: Annotated[Path, Input("texts")] = Field(description="All documents.")
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
        with finished(corpus) as part, part.open("w", encoding="utf-8") as stream:
            for text in encoded.values():
                row = {"_id": text.id, "title": text.title, "text": text.text}
                stream.write(json.dumps(row, ensure_ascii=False) + "\n")
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


def _estimate(settings: ReleaseSettings, sizes: Mapping[str, Estimate]) -> Estimate:
    del settings
    return sizes["documents"]


RELEASE = Step("release", ReleaseSettings, release, "file", _estimate, alone=False)
