"""The corrected edition of an audit: the benchmark with qrels corrected by the judges' labels."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

from medteb_mteb.curation.edition.describe import describe
from medteb_mteb.curation.files.layout import write_qrels, write_rows, write_texts
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.editions import (
    CROISSANT,
    MANIFEST_NAME,
    PROVENANCE,
    EditionError,
    load_edition,
    verify,
    write_manifest,
)
from medteb_mteb.editions.provenance import mappings, read_provenance
from medteb_mteb.folders.layout import inspect_folder
from medteb_mteb.folders.settings import PINNED_SETTINGS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from medteb_mteb.curation.labels.audit import Benchmark
    from medteb_mteb.curation.labels.grades import Label
    from medteb_mteb.editions import Edition
    from medteb_mteb.folders.layout import Layout

__all__ = ["write_corrected"]

#: Parts of the benchmark's provenance that an audit adds to.
_EXTENDED_KEYS = ("anonymisers", "retrievers", "judges", "consensus")


def write_corrected(
    benchmark: Benchmark,
    labels: Sequence[Label],
    out: Path,
    *,
    name: str,
    provenance: Mapping[str, Any],
    keep_false_positives: bool = False,
) -> Edition:
    """Write the benchmark with qrels corrected by the labels; the original is not changed.

    Positives by the judges are added with relevance 1, released positives that the judges call negative are
    removed, and all other qrels stay. Queries that lose their last positive are left out. The task keeps its
    name, type, prompt, main score, languages and domains.

    Args:
        benchmark: The benchmark.
        labels: Labels of its pairs.
        out: Folder to write, new or empty. A corrected edition that nobody changed is replaced.
        name: Name of the edition.
        provenance: How the labels were made, see `medteb_mteb.editions.provenance`; added to the benchmark's
            own provenance.
        keep_false_positives: Only add positives.

    Raises:
        BuildError: The folder is in use or cannot be written, or no query keeps a positive.
    """
    if out.exists() and not out.is_dir():
        raise BuildError(f"{out} is not a folder; give a new one.")
    if out.exists() and any(out.iterdir()) and not _is_as_written(out):
        raise BuildError(
            f"{out} is not empty; give a new folder. (Only a corrected edition that nobody changed is "
            "replaced.)"
        )
    qrels = {query: dict(benchmark.qrels.get(query, {})) for query in benchmark.queries}
    added = removed = 0
    for label in labels:
        row = qrels[label.query_id]
        inside = label.document_id in benchmark.candidates.get(label.query_id, [label.document_id])
        if label.relevance and label.document_id not in row and inside:
            row[label.document_id] = 1
            added += 1
        elif label.relevance == 0 and label.document_id in row and not keep_false_positives:
            del row[label.document_id]
            removed += 1
    kept = {query: row for query, row in qrels.items() if row}
    if not kept:
        raise BuildError("No query has a positive that the judges confirm, so nothing is written.")
    changes = {"added": added, "removed": removed, "queries left out": len(qrels) - len(kept)}
    part = out.with_name(out.name + ".part")
    try:
        shutil.rmtree(part, ignore_errors=True)
        _write(part, benchmark, kept, name=name, changes=changes, provenance=provenance)
        if out.exists():
            shutil.rmtree(out)
        part.replace(out)
    except OSError as error:
        raise BuildError(
            f"{error.filename or part} cannot be written ({error.strerror}). Fix this and run it again."
        ) from error
    return load_edition(out)


def _is_as_written(folder: Path) -> bool:
    """Return True if a folder holds a corrected edition, unchanged, and nothing else."""
    try:
        edition = load_edition(folder)
        verify(edition)
    except EditionError:
        return False
    ours = {*edition.files, MANIFEST_NAME, PROVENANCE, CROISSANT}
    present = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}
    return "corrected" in edition.extra and present <= ours


def _settings(layout: Layout) -> dict[str, Any]:
    """Return the settings of a benchmark's task, as fields of a manifest."""
    from medteb_mteb.folders.languages import UNKNOWN_LANGUAGE, eval_languages  # lazy: mteb

    stated = {key: getattr(layout.settings, key) for key in (*PINNED_SETTINGS, "domains")}
    stated["languages"] = [code for code in eval_languages(layout) if code != UNKNOWN_LANGUAGE] or None
    return {key: value for key, value in stated.items() if value is not None}


def _write(
    part: Path,
    benchmark: Benchmark,
    kept: Mapping[str, dict[str, int]],
    *,
    name: str,
    changes: Mapping[str, int],
    provenance: Mapping[str, Any],
) -> None:
    """Write the files of the edition to a folder that does not exist yet."""
    write_texts(part / "corpus.jsonl", benchmark.documents.values(), titles=True)
    write_texts(part / "queries.jsonl", (benchmark.queries[query] for query in kept), titles=False)
    write_qrels(part, dict(kept))
    (part / "labels.tsv").unlink()
    lists = {query: benchmark.candidates[query] for query in kept if query in benchmark.candidates}
    if lists:
        rows = ({"query-id": query, "corpus-ids": names} for query, names in lists.items())
        write_rows(part / "top_ranked.jsonl", rows)
    layout = inspect_folder(benchmark.folder, check_manifest=False)
    write_manifest(
        part,
        task=layout.name,
        name=name,
        version="1.0.0",
        licence=benchmark.licence,
        counts={
            "queries": len(kept),
            "corpus": len(benchmark.documents),
            "qrels": sum(map(len, kept.values())),
        },
        corrected=dict(changes),
        **_settings(layout),
    )
    before = read_provenance(benchmark.folder)
    added_to = {key: [*mappings(before, key), *mappings(provenance, key)] for key in _EXTENDED_KEYS}
    describe(load_edition(part), {**before, **added_to})
