"""Provenance and Croissant beside the data of an edition: files outside its digest."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from medteb_mteb.curation.edition.croissant import croissant
from medteb_mteb.curation.files.folder import write_text
from medteb_mteb.curation.files.sources import merged_sources, sources_of
from medteb_mteb.curation.labels.provenance import provenance_of_labels, provenance_of_texts
from medteb_mteb.editions import CROISSANT, MANIFEST_NAME, PROVENANCE, load_edition
from medteb_mteb.editions.provenance import read_provenance

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from medteb_mteb.curation.files.sources import TextSource
    from medteb_mteb.editions import Edition

__all__ = ["add_leakage", "describe", "gathered"]


def gathered(
    texts: Iterable[str | Path], named: Iterable[TextSource], labels: str | Path | None = None
) -> dict[str, Any]:
    """Gather the records of earlier steps about an edition, in the form of `provenance.json`.

    Args:
        texts: Files or folders of the edition's texts.
        named: Sources in addition to those named in the texts' folders.
        labels: Labels of `medteb consensus`.

    Raises:
        BuildError: A source has two licences.
    """
    paths = list(texts)
    sources = merged_sources([*map(sources_of, paths), [one.to_json() for one in named]])
    content = {} if labels is None else provenance_of_labels(labels)
    anonymisers = provenance_of_texts(*paths)["anonymisers"] or content.get("anonymisers", [])
    return {**({"sources": sources} if sources else {}), **content, "anonymisers": anonymisers}


def describe(edition: Edition, provenance: Mapping[str, Any]) -> None:
    """Write `provenance.json` and `croissant.json` of an edition.

    Args:
        edition: The edition; its data files exist.
        provenance: How it was made, see `medteb_mteb.editions.provenance`.

    Raises:
        BuildError: The files cannot be written.
        FolderError: A table has no row.
    """
    content = {"schema_version": 1, **{key: value for key, value in provenance.items() if value}}
    write_text(edition.path / PROVENANCE, _dump(content))
    write_text(edition.path / CROISSANT, _dump(croissant(edition)))


def add_leakage(data: Path, leakage: Mapping[str, Any]) -> None:
    """Add the leakage report of a build to the provenance of all editions of a folder; texts are left out.

    Args:
        data: Folder of editions.
        leakage: See `medteb_mteb.curation.pipeline.leaks`.

    Raises:
        BuildError: The files cannot be written.
    """
    counts = {
        name: {key: one[key] for key in ("queries", "leaks")} for name, one in leakage["training"].items()
    }
    report = {"tests": leakage["tests"], "leaks": leakage["leaks"], "training": counts}
    for manifest in sorted(data.glob(f"*/{MANIFEST_NAME}")):
        provenance = read_provenance(manifest.parent)
        if not provenance:
            continue  # of an earlier version
        before = provenance.get("contamination")
        contamination = {**(before if isinstance(before, dict) else {}), "leakage": report}
        if contamination != before:
            describe(load_edition(manifest.parent), {**provenance, "contamination": contamination})


def _dump(content: Mapping[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False, indent=2) + "\n"
