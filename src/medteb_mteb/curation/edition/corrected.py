"""The corrected edition of an audit: the benchmark with qrels corrected by the judges' labels."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

from medteb_mteb.curation.edition.describe import describe
from medteb_mteb.curation.files.layout import write_qrels, write_rows, write_texts
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.editions import load_edition, write_manifest
from medteb_mteb.editions.provenance import mappings, read_provenance

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from medteb_mteb.curation.labels.audit import Benchmark
    from medteb_mteb.curation.labels.grades import Label
    from medteb_mteb.editions import Edition

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
    removed, and all other qrels stay. Queries that lose their last positive are left out.

    Args:
        benchmark: The benchmark.
        labels: Labels of its pairs.
        out: Folder to write, new or empty.
        name: Name of the edition.
        provenance: How the labels were made, see `medteb_mteb.editions.provenance`; added to the benchmark's
            own provenance.
        keep_false_positives: Only add positives.

    Raises:
        BuildError: The folder is in use or cannot be written, or no query keeps a positive.
    """
    if out.exists() and not out.is_dir():
        raise BuildError(f"{out} is not a folder; give a new one.")
    if out.exists() and any(out.iterdir()):
        raise BuildError(f"{out} is not empty; give a new folder.")
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
        raise BuildError("No query keeps a positive; the judges contradict the whole benchmark.")
    changes = {"added": added, "removed": removed, "queries left out": len(qrels) - len(kept)}
    part = out.with_name(out.name + ".part")
    try:
        shutil.rmtree(part, ignore_errors=True)
        _write(part, benchmark, kept, name=name, changes=changes, provenance=provenance)
        if out.exists():
            out.rmdir()
        part.replace(out)
    except OSError as error:
        raise BuildError(
            f"{error.filename or part} cannot be written ({error.strerror}). Fix this and run it again."
        ) from error
    return load_edition(out)


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
    write_manifest(
        part,
        task=benchmark.folder.name,
        name=name,
        version="1.0.0",
        licence=benchmark.licence,
        counts={
            "queries": len(kept),
            "corpus": len(benchmark.documents),
            "qrels": sum(map(len, kept.values())),
        },
        corrected=dict(changes),
    )
    before = read_provenance(benchmark.folder)
    added_to = {key: [*mappings(before, key), *mappings(provenance, key)] for key in _EXTENDED_KEYS}
    describe(load_edition(part), {**before, **added_to})
