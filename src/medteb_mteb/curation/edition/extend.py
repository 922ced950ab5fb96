"""New versions of an edition: the same judges grade unjudged documents that new systems retrieve.

Queries, corpus and all labels of the earlier version stay unchanged. So any earlier run can be scored with
the new labels, and its score changes only through documents that were unjudged.
"""

from __future__ import annotations

import re
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from mar_st.data.rows import read_rows
from mar_st.errors import MarError
from mar_st.files import finished_folder
from mar_st.options import Argument, FromFile, Settings, Switch
from medteb_mteb.curation.edition.write import write_provenance
from medteb_mteb.curation.files.layout import write_rows, write_texts
from medteb_mteb.curation.files.records import Text
from medteb_mteb.curation.judge.judges import Judges
from medteb_mteb.curation.judge.step import JUDGE, JudgeSettings
from medteb_mteb.curation.labels.consensus import ConsensusRule, consensus, counts
from medteb_mteb.curation.labels.grades import read_judgements
from medteb_mteb.curation.pooling import POOL, PoolSettings
from medteb_mteb.curation.step import perform
from medteb_mteb.editions import (
    MANIFEST_NAME,
    PROVENANCE,
    STATISTICS,
    edition_folder,
    load_edition,
    mappings,
    read_provenance,
    verify,
    write_manifest,
)
from medteb_mteb.folders.layout import DISPUTED
from medteb_mteb.measures import CUTOFF

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from medteb_mteb.curation.labels.grades import Label
    from medteb_mteb.editions import Edition
    from medteb_mteb.folders.content import RetrievalData

QRELS, LABELS = "qrels/test.tsv", "labels.tsv"
_SEMANTIC = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})\.([0-9]{1,9})")


class ExtendSettings(Settings):
    """Options of `medteb edition extend`."""

    edition: Annotated[str, Argument()] = Field(description="Task name or folder of an edition of retrieval.")
    retrievers: Annotated[tuple[str, ...], Switch("--retriever")] = Field(
        min_length=1, description="System: a TREC run, or a retriever of 'medteb pool'; may be repeated."
    )
    judges: Annotated[Judges, FromFile()] = Field(description="YAML file of the edition's judges.")
    out: Path = Field(description="Folder to write; the edition is not changed.")
    depth: int = Field(CUTOFF, ge=1, description="Number of top documents to judge per system.")
    other_panel: bool = Field(False, description="Accept judges that are not those of the edition.")
    already_anonymous: bool = Field(False, description="The texts hold no personal data: send them.")


def _open(folder: Path) -> tuple[Edition, RetrievalData]:
    """Return an edition that can be extended: retrieval, with intact files and judged negatives.

    Raises:
        MarError: It is no such edition.
    """
    from medteb_mteb.folders.content import read_folder  # lazy: mteb

    edition = load_edition(folder)
    verify(edition)
    data = read_folder(folder).retrieval
    if data is None or data.top_ranked is not None:
        raise MarError(f"{folder} is not an edition of retrieval; the candidates of reranking are fixed.")
    if not data.judged.known or QRELS not in edition.files:
        raise MarError(f"{folder} lists no judged negatives, so it is unknown which pairs were judged.")
    return edition, data


def extend(settings: ExtendSettings) -> dict[str, Any]:
    """Judge documents that new systems find, and write a new version of an edition.

    The judges of the edition grade those of a system's top documents that are not judged yet. All earlier
    labels stay, so the new version can also score runs of earlier systems. The exit code is 1 if a judge
    stopped; answers are kept, and the same command continues.
    """
    edition, data = _open(edition_folder(settings.edition))
    out, before = settings.out, read_provenance(edition.path)
    if out.resolve().is_relative_to(edition.path.resolve()):
        raise MarError(f"{out} is part of the edition; give another folder.")
    rule = _rule_of(before)
    if not settings.other_panel:
        _same_panel(before, settings.judges, edition)
    version = next_version(edition.version)
    files = {name: out / "input" / f"{name}.jsonl" for name in ("queries", "documents", "unjudged")}
    write_texts(files["queries"], [Text(row["id"], row["text"]) for row in data.queries], titles=False)
    documents = [Text(row["id"], row["text"], row["title"]) for row in data.corpus]
    write_texts(files["documents"], documents, titles=True)
    pooling = PoolSettings(
        out=out / "pools",
        queries=files["queries"],
        documents=files["documents"],
        retrievers=settings.retrievers,
        size=max(1, len(documents)),
        depth=settings.depth,
    )
    pooled, _ = perform(POOL, pooling)
    unjudged = _unjudged(data, out / "pools" / "pools.jsonl")
    if not unjudged:
        return {"edition": None}
    rows = ({"query-id": query, "corpus-ids": names} for query, names in unjudged.items())
    write_rows(files["unjudged"], rows)
    judging = JudgeSettings(
        out=out / "judged",
        queries=files["queries"],
        documents=files["documents"],
        pools=files["unjudged"],
        judges=settings.judges,
        already_anonymous=settings.already_anonymous,
    )
    judged, _ = perform(JUDGE, judging)
    if judged["counts"]["stopped"]:
        return {"edition": None, "stopped": judged["counts"]["stopped"], "failed": True}
    labels = consensus(read_judgements(judging.out), rule)
    change = {
        "version": version,
        "systems": [one["name"] for one in pooled["provenance"]["retrievers"]],
        "depth": settings.depth,
        "pairs judged": sum(map(len, unjudged.values())),
        "positive": 0,
        "negative": 0,
        "disputed": 0,
        **Counter(map(_kind, labels)),
    }
    entry = {**rule.model_dump(mode="json"), "positive": list(rule.positive), "labels": counts(labels)}
    added = {**pooled["provenance"], **judged["provenance"], "consensus": [entry]}
    provenance = {**before}
    for key, entries in added.items():
        provenance[key] = [*mappings(before, key), *({**one, "version": version} for one in entries)]
    with finished_folder(out / edition.task) as part:
        _write_version(edition, change, labels, part, provenance)
    newer = load_edition(out / edition.task)
    shown = {"path": str(newer.path), "version": newer.version, "digest": newer.digest}
    return {"edition": shown, "change": change}


def _kind(label: Label) -> str:
    return "disputed" if label.relevance is None else "positive" if label.relevance else "negative"


def _rule_of(provenance: Mapping[str, Any]) -> ConsensusRule:
    """Return the rule of the edition, from its provenance; the published one if it names none."""
    for entry in reversed(mappings(provenance, "consensus")):
        fields = {key: value for key, value in entry.items() if key in ConsensusRule.model_fields}
        if "rule" in fields:
            return ConsensusRule.model_validate(fields)
    return ConsensusRule()


def _same_panel(provenance: Mapping[str, Any], panel: Judges, edition: Edition) -> None:
    """Refuse judges that are not those of the edition, by name and model."""
    earlier = {one.get("name"): one.get("model") for one in mappings(provenance, "judges")}
    current = {one.name: getattr(one, "model", None) for one in panel.judges}
    if earlier != current:
        raise MarError(
            f"{edition.path} was judged by {earlier or 'unknown judges'}, not by {current}. Labels of two "
            "panels do not mix; give the same judges, or say that they are others (--other-panel)."
        )


def next_version(version: str) -> str:
    """Return the next minor version."""
    number = _SEMANTIC.fullmatch(version)
    return f"{number[1]}.{int(number[2]) + 1}.0" if number else f"{version}.1"


def _unjudged(data: RetrievalData, pools: Path) -> dict[str, list[str]]:
    """Return the unjudged documents of the pools, by query, sorted."""
    unjudged: dict[str, list[str]] = {}
    for row in read_rows(pools, lambda row: row.values):
        query = row["query-id"]
        negatives, disputed = (rows.get(query, ()) for rows in (data.judged.negatives, data.judged.disputed))
        known = {*data.qrels.get(query, {}), *negatives, *disputed}
        if missing := sorted(set(row["corpus-ids"]) - known):
            unjudged[query] = missing
    return unjudged


def _write_version(
    edition: Edition, change: Mapping[str, Any], labels: list[Label], out: Path, provenance: Mapping[str, Any]
) -> None:
    """Write a new version to a folder: all files of the edition, with the new labels appended."""
    made_again = shutil.ignore_patterns(MANIFEST_NAME, PROVENANCE, STATISTICS, ".*", "*.part")
    shutil.copytree(edition.path, out, ignore=made_again, dirs_exist_ok=True)
    labelled = [label for label in labels if label.relevance is not None]
    header = "query-id\tcorpus-id\tscore"
    _append(out / QRELS, header, (label for label in labelled if label.relevance))
    _append(out / LABELS, header, labelled)
    _append(out / DISPUTED, "query-id\tcorpus-id", (label for label in labels if label.relevance is None))
    counts = {**edition.counts, "qrels": edition.counts.get("qrels", 0) + change["positive"]}
    newer = write_newer(edition, out, change["version"], counts, change)
    write_provenance(newer.path, provenance)


def write_newer(
    edition: Edition, out: Path, version: str, counts: Mapping[str, int], changes: Mapping[str, Any]
) -> Edition:
    """Write the manifest of a newer version of an edition, with the version before in its `history`.

    Args:
        edition: The version before.
        out: Folder of the newer version.
        version: Its version.
        counts: Its numbers of records by kind.
        changes: What has changed.
    """
    entry = {"version": edition.version, "digest": edition.digest, "changes": dict(changes)}
    return write_manifest(
        out,
        task=edition.task,
        name=edition.name,
        version=version,
        licence=edition.licence,
        counts=counts,
        **{key: value for key, value in edition.extra.items() if key not in ("history", "statistics")},
        history=[*mappings(edition.extra, "history"), entry],
    )


def _append(path: Path, header: str, labels: Iterable[Label]) -> None:
    """Append rows to a file; a missing file is created with a header if there are rows."""
    rows = []
    for label in sorted(labels, key=lambda one: (one.query_id, one.document_id)):
        end = f"\t{label.relevance}" if label.relevance is not None else ""
        rows.append(f"{label.query_id}\t{label.document_id}{end}")
    if not rows:
        return
    before = path.read_text(encoding="utf-8") if path.is_file() else f"{header}\n"
    if before.split("\n", 1)[0].rstrip("\r") != header:
        raise MarError(f"{path.name} of the edition has other columns than {header.split(chr(9))}.")
    path.write_bytes((before.rstrip("\n") + "\n" + "\n".join(rows) + "\n").encode())


def as_text(report: Mapping[str, Any]) -> str:
    """Return what was judged and written."""
    if report.get("stopped"):
        return f"stopped: {report['stopped']}. Run the same command to continue."
    if report["edition"] is None:
        return "all these documents are judged already; no new version was written"
    change, edition = report["change"], report["edition"]
    numbers = ", ".join(f"{change[key]:,} {key}" for key in ("positive", "negative", "disputed"))
    judged = f"{change['pairs judged']:,} pairs judged: {numbers}"
    return f"{judged}\nversion {edition['version']} in {edition['path']}"
