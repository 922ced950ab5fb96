"""New versions of an edition: the same judges grade unjudged documents that new systems retrieve.

Queries, corpus and all labels of the earlier version stay unchanged. So any earlier run can be scored with
the new labels, and its score changes only through documents that were unjudged.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mar_st.files import move_folder
from medteb_mteb.curation.edition.versions import Change, next_version, write_version
from medteb_mteb.curation.files.folder import refuse_within, write_text
from medteb_mteb.curation.files.layout import write_texts
from medteb_mteb.curation.files.records import BuildError, Text
from medteb_mteb.curation.judge import JUDGE, Judges, JudgeSettings, load_judges
from medteb_mteb.curation.labels.agreement import agreement
from medteb_mteb.curation.labels.consensus import ConsensusRule, consensus, counts
from medteb_mteb.curation.labels.grades import read_judging
from medteb_mteb.curation.labels.intervals import interval
from medteb_mteb.curation.labels.provenance import judge_entry
from medteb_mteb.curation.pooling import POOL, PoolSettings
from medteb_mteb.curation.step import perform
from medteb_mteb.editions import load_edition, verify
from medteb_mteb.editions.provenance import mappings, read_provenance
from medteb_mteb.folders.layout import inspect_folder
from medteb_mteb.folders.problems import Problems
from medteb_mteb.folders.retrieval import read_retrieval
from medteb_mteb.measures.rankings import CUTOFF, means, score_queries
from medteb_mteb.report.intervals import MeanSample

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from medteb_mteb.curation.labels.grades import Judging, Label
    from medteb_mteb.editions import Edition
    from medteb_mteb.folders.retrieval import RetrievalData

__all__ = ["Extension", "SystemScores", "extend", "open_edition"]

#: Number of documents of a system kept for its scores if fewer are judged.
SCORED_DEPTH = 100


@dataclass(frozen=True)
class SystemScores:
    """Scores of one system by the labels of a version.

    Attributes:
        ndcg: nDCG@10.
        low: Lower end of its 95 % bootstrap interval over queries.
        high: Upper end of that interval.
        judged: judged@10; None if nothing was retrieved.
        condensed: nDCG@10 of only the judged documents.
    """

    ndcg: float
    low: float
    high: float
    judged: float | None
    condensed: float


@dataclass(frozen=True)
class Extension:
    """Outcome of an extension.

    Attributes:
        judging: Counts of the judging, see `Counts`; None if everything was judged already.
        edition: The new version; None if judgements are missing or nothing was new.
        change: Additions of the new version.
        before: Scores of the systems with the earlier labels.
        after: Their scores with the new labels.
    """

    judging: dict[str, Any] | None = None
    edition: Edition | None = None
    change: Change | None = None
    before: dict[str, SystemScores] = field(default_factory=dict)
    after: dict[str, SystemScores] = field(default_factory=dict)


def open_edition(folder: Path) -> tuple[Edition, RetrievalData]:
    """Return an edition that can be extended: retrieval, with intact files and judged negatives.

    Raises:
        BuildError: The edition has another type, or lists no judged negatives.
        EditionError: The edition has no manifest, or a file differs from it.
        FolderError: Rows are unusable.
    """
    edition = load_edition(folder)
    verify(edition)
    layout = inspect_folder(folder)
    if "qrels" not in layout.tables or "top_ranked" in layout.tables:
        raise BuildError(f"{folder} is not an edition of retrieval; the candidates of reranking are fixed.")
    data = read_retrieval(layout, Problems(folder))
    if not data.judged.known:
        raise BuildError(
            f"{folder} lists no judged negatives, so it is unknown which pairs were judged. 'medteb audit' "
            "judges it."
        )
    return edition, data


def extend(
    folder: str | Path,
    out: str | Path,
    retrievers: Sequence[str],
    judges: Judges | str | Path,
    *,
    depth: int = CUTOFF,
    version: str | None = None,
    rule: ConsensusRule | None = None,
    other_panel: bool = False,
    journal: Path | None = None,
    store: Path | None = None,
    already_anonymous: bool = False,
    retry_failed: bool = False,
    show_progress: bool = True,
) -> Extension:
    """Have the unjudged documents at the top of some rankings judged, and write a new version.

    The edition is not changed; the new version goes to `out`, into a folder with the task's name. A second
    call resumes an interrupted one.

    Args:
        folder: A retrieval edition with a manifest and judged negatives.
        out: Folder to write.
        retrievers: The systems: models that search the corpus, or files of runs.
        judges: The judges, or their YAML file.
        depth: Number of top documents per system to judge.
        version: Version of the new edition; default the next minor one.
        rule: How grades become labels; default that of the edition.
        other_panel: Whether the judges may be others than those of the edition.
        journal: The journal of paid answers, default `out/answers.sqlite`.
        store: Folder that keeps the vectors of models; default: none.
        already_anonymous: Send the texts of the edition to the judges.
        retry_failed: Ask again for everything that failed in earlier runs.
        show_progress: Show progress bars.

    Raises:
        BuildError: The edition cannot be extended, the judges or the rule are unknown or not the edition's,
            the folder belongs to something else, or the edition would be written to.
    """
    place, target = Path(folder), Path(out)
    edition, data = open_edition(place)
    for written in (target, target / edition.task):
        refuse_within(written, place)
    recorded = read_provenance(place)
    panel = judges if isinstance(judges, Judges) else load_judges(judges)
    how = rule or _rule_of(recorded, place)
    if not other_panel:
        _same_panel(recorded, panel, place)
    new_version = next_version(edition, version)
    queries = [Text(row["id"], row["text"]) for row in data.queries]
    documents = [Text(row["id"], row["text"], row["title"]) for row in data.corpus]
    corpus = target / "corpus"
    write_texts(corpus / "queries.jsonl", queries, titles=False)
    write_texts(corpus / "documents.jsonl", documents, titles=True)
    pooling = PoolSettings(
        out=target / "pools",
        queries=corpus / "queries.jsonl",
        documents=corpus / "documents.jsonl",
        retrievers=tuple(retrievers),
        size=max(1, len(documents)),
        depth=max(depth, SCORED_DEPTH),
        store=store,
        quiet=not show_progress,
    )
    pooled, _ = perform(POOL, pooling)
    runs = _runs(pooling.out / "pools.jsonl")
    before = _scores(data, runs)
    unjudged = _unjudged(data, runs, depth)
    if not unjudged:
        return Extension(before=before)
    files = _write_input(target / "input", queries, documents, unjudged)
    judged, _ = perform(
        JUDGE,
        JudgeSettings(
            out=target / "judged",
            queries=files[0],
            documents=files[1],
            pools=files[2],
            judges=panel,
            journal=journal or target / "answers.sqlite",
            already_anonymous=already_anonymous,
            retry_failed=retry_failed,
            quiet=not show_progress,
        ),
    )
    report = judged["counts"]
    if report["stopped"]:
        return Extension(report, before=before)
    judging = read_judging(target / "judged")
    failed = [pair[:2] for pair in judging.failed]
    labels = consensus(judging.judgements, how, judges=judging.judges, pairs=failed)
    retrieved = pooled["provenance"]["retrievers"]
    change = Change(new_version, tuple(runs), depth, sum(map(len, unjudged.values())), tuple(labels))
    agreed = _agreed(judging, how)
    provenance = _merged(recorded, judged["provenance"], retrieved, how, labels, agreed, new_version)
    newer, content = _write_version(edition, data, change, target, provenance)
    return Extension(report, newer, change, before, _scores(content, runs))


def _write_version(
    edition: Edition, data: RetrievalData, change: Change, target: Path, provenance: Mapping[str, Any]
) -> tuple[Edition, RetrievalData]:
    """Write the new version, in place of one that an earlier run wrote, and return it with its data."""
    part = target / f"{edition.task}.part"
    shutil.rmtree(part, ignore_errors=True)
    write_version(edition, data, change, part, provenance)
    shutil.rmtree(target / edition.task, ignore_errors=True)
    move_folder(part, target / edition.task)
    return open_edition(target / edition.task)


def _rule_of(provenance: Mapping[str, Any], folder: Path) -> ConsensusRule:
    """Return the rule of the edition, from its provenance."""
    for entry in reversed(mappings(provenance, "consensus")):
        if entry.get("rule") and entry.get("positive"):
            options: dict[str, Any] = {
                key: tuple(value) if isinstance(value, list) else value
                for key, value in (entry.get("options") or {}).items()
            }
            try:
                return ConsensusRule(entry["rule"], tuple(entry["positive"]), **options)
            except TypeError:
                break
    raise BuildError(
        f"{folder} does not say by which rule its labels were made (provenance.json). Give the rule (--rule)."
    )


def _same_panel(provenance: Mapping[str, Any], panel: Judges, folder: Path) -> None:
    """Refuse judges that are not those of the edition."""
    earlier = {
        one["name"]: judge_entry(one["name"], one)
        for one in mappings(provenance, "judges")
        if one.get("name")
    }
    current = {one.name: judge_entry(one.name, one.description()) for one in panel.judges}
    advice = (
        "Labels of two panels do not mix; give the same judges, or say that they are others (--other-panel)."
    )
    if not earlier:
        raise BuildError(f"{folder} does not say who judged it (provenance.json). {advice}")
    if sorted(earlier) != sorted(current):
        raise BuildError(
            f"{folder} was judged by {', '.join(sorted(earlier))}, not {', '.join(sorted(current))}. {advice}"
        )
    for name, one in sorted(earlier.items()):
        for key in {**one, **current[name]}:
            if one.get(key) != current[name].get(key):
                raise BuildError(
                    f"The judge {name!r} of {folder} had {key} {one.get(key)!r}, now it has "
                    f"{current[name].get(key)!r}. {advice}"
                )


def _runs(pools: Path) -> dict[str, dict[str, dict[str, float]]]:
    """Return documents by system and query, with minus their rank as score."""
    runs: dict[str, dict[str, dict[str, float]]] = {}
    with pools.open(encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            for name, ranks in row["ranks"].items():
                ranked = zip(row["corpus-ids"], ranks, strict=True)
                listed = {document: -float(rank) for document, rank in ranked if rank is not None}
                runs.setdefault(name, {})[row["query-id"]] = listed
    return runs


def _unjudged(
    data: RetrievalData, runs: Mapping[str, Mapping[str, Mapping[str, float]]], depth: int
) -> dict[str, list[str]]:
    """Return the unjudged documents at the top of the rankings, by query, sorted."""
    unjudged: dict[str, list[str]] = {}
    for row in data.queries:
        query = row["id"]
        top = {
            document
            for run in runs.values()
            for document, score in run.get(query, {}).items()
            if -score <= depth
        }
        judged = data.judged
        known = {
            *data.qrels.get(query, {}),
            *judged.negatives.get(query, ()),
            *judged.disputed.get(query, ()),
        }
        if missing := sorted(top - known):
            unjudged[query] = missing
    return unjudged


def _write_input(
    folder: Path, queries: Sequence[Text], documents: Sequence[Text], unjudged: Mapping[str, Sequence[str]]
) -> tuple[Path, Path, Path]:
    """Write queries, documents and pairs to files for the judging, and return their paths."""
    files = folder / "queries.jsonl", folder / "documents.jsonl", folder / "unjudged" / "pools.jsonl"
    listed = {name for names in unjudged.values() for name in names}
    write_texts(files[0], (text for text in queries if text.id in unjudged), titles=False)
    write_texts(files[1], (text for text in documents if text.id in listed), titles=True)
    files[2].parent.mkdir(parents=True, exist_ok=True)
    rows = ({"query-id": query, "corpus-ids": list(names)} for query, names in unjudged.items())
    write_text(files[2], "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return files


def _merged(
    provenance: Mapping[str, Any],
    judged: Mapping[str, Any],
    retrievers: list[dict[str, Any]],
    rule: ConsensusRule,
    labels: Sequence[Label],
    agreed: Mapping[str, Any],
    version: str,
) -> dict[str, Any]:
    """Return the provenance of the earlier version with the additions of this one."""
    judges = {one["name"]: dict(one) for one in mappings(provenance, "judges") if one.get("name")}
    for one in mappings(judged, "judges"):
        record = judges.setdefault(one["name"], {**one, "answered": []})
        record["answered"] = [
            *mappings(record, "answered"),
            *({**answer, "version": version} for answer in mappings(one, "answered")),
        ]
    entry = {"rule": rule.kind, "positive": list(rule.positive), **rule.options(), "labels": counts(labels)}
    return {
        **provenance,
        "judges": [judges[name] for name in sorted(judges)],
        "retrievers": [
            *mappings(provenance, "retrievers"),
            *({**one, "version": version} for one in retrievers),
        ],
        "consensus": [*mappings(provenance, "consensus"), {**entry, "agreement": agreed, "version": version}],
    }


def _agreed(judging: Judging, rule: ConsensusRule) -> dict[str, Any]:
    """Return the judges' agreement on the new pairs; empty for a single judge."""
    counted = [one for one in judging.judgements if not rule.judges or one.judge in rule.judges]
    try:
        estimates: dict[str, Any] = agreement(counted, positive=rule.positive).to_json()["labels"]
    except BuildError:
        return {}
    return estimates


def _scores(
    data: RetrievalData, runs: Mapping[str, Mapping[str, Mapping[str, float]]]
) -> dict[str, SystemScores]:
    qrels = {query: {d: score for d, score in row.items() if score > 0} for query, row in data.qrels.items()}
    by_system = {}
    for name, run in runs.items():
        scores = score_queries({query: row for query, row in qrels.items() if row}, data.judged, run)
        mean = means(scores.values())
        low, high = interval(MeanSample(np.array([one.ndcg for one in scores.values()])))
        by_system[name] = SystemScores(mean.ndcg, low, high, mean.judged, mean.condensed)
    return by_system
