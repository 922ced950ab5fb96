"""Judging of pools: read, ask, store, export."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm.auto import tqdm

from medteb_mteb.curation.files.folder import alone, claim, lineage, read_json, write_text
from medteb_mteb.curation.files.read import MANIFEST, source_digest
from medteb_mteb.curation.judge.config import AnyJudge, Judge, Judges, load_judges
from medteb_mteb.curation.judge.estimate import journal_path
from medteb_mteb.curation.judge.export import FAILED_FILE, JUDGEMENTS_FILE, Outcome, export, outcomes
from medteb_mteb.curation.judge.injection import suspicious
from medteb_mteb.curation.judge.journal import JudgementJournal
from medteb_mteb.curation.judge.learned import LearnedPlanner, LearnedWorker
from medteb_mteb.curation.judge.material import read_material
from medteb_mteb.curation.judge.plan import PlannedJudgements, RequestPlanner
from medteb_mteb.curation.judge.pools import pool_files
from medteb_mteb.curation.judge.raised import check_of, raised
from medteb_mteb.curation.judge.report import JudgeReport, JudgeResult, finished
from medteb_mteb.curation.judge.unread import read_again, why_stopped
from medteb_mteb.curation.judge.worker import JudgeWorker
from medteb_mteb.curation.llm.loop import INTERRUPTED, run_workers
from medteb_mteb.editions import sha256_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from medteb_mteb.curation.judge.material import JudgingMaterial

__all__ = ["judge"]

SCHEMA_VERSION = 1


def judge(
    queries: str | Path,
    documents: str | Path,
    pools: str | Path,
    out: str | Path,
    judges: Judges | str | Path,
    *,
    journal: str | Path | None = None,
    gold: str | Path | None = None,
    already_anonymous: bool = False,
    retry_failed: bool = False,
    show_progress: bool = True,
) -> JudgeReport:
    """Have every judge grade every pair of the pools; resume where an earlier run ended.

    The journal is authoritative: a judgement in it, from this build or any other, is never paid for again.
    The folder is written from it once nothing is left to ask for, with the same bytes however often the run
    was interrupted.

    Args:
        queries: Queries, see `read_texts`.
        documents: Documents, see `read_texts`.
        pools: Documents to judge for each query, see `read_pools`.
        out: Folder to write.
        judges: The judges, or their YAML file.
        journal: The journal, see `journal_path`.
        gold: Documents known to answer a query, in the format of the pools: positive control passages.
        already_anonymous: Also send texts that were not processed by the anonymiser.
        retry_failed: Ask again, once, for everything that failed in earlier runs.
        show_progress: Show a progress bar.

    Raises:
        BuildError: The input cannot be used, texts are not anonymised, an API key is missing, the folder or
            the journal belongs to something else, is in use or cannot be written.
        FolderError: The input has unusable rows.
    """
    config = judges if isinstance(judges, Judges) else load_judges(judges)
    folder, path = Path(out), journal_path(out, journal)
    material = read_material(queries, documents, pools, already_anonymous=already_anonymous, gold=gold)
    for one in config.judges:
        one.key()
    with alone(folder):
        planners = [_planner(one, config, material, retry_failed=retry_failed) for one in config.judges]
        identity = _identity(queries, documents, pools, gold, planners, config)
        claim(folder, identity)
        manifest = folder / MANIFEST
        if manifest.is_file() and not retry_failed:
            return finished(folder, path, read_json(manifest))
        report = _grade(planners, config, material, folder, path, show_progress=show_progress)
        write_text(folder / "report.json", _dump(report.to_json()))
        if report.complete:
            results = sorted(report.judges, key=lambda result: result.name)
            content = {
                **identity,
                "already_anonymous": already_anonymous,
                "pairs": material.pairs,
                "judges": {result.name: result.outcome.to_json() for result in results},
                "before": {
                    "queries": lineage(queries),
                    "documents": lineage(documents),
                    "pools": _pooling(pools),
                },
                "files": {name: sha256_of(folder / name) for name in (JUDGEMENTS_FILE, FAILED_FILE)},
            }
            write_text(manifest, _dump(content))
    if any(result.stopped == INTERRUPTED for result in report.judges):
        raise KeyboardInterrupt
    return report


def _grade(
    planners: Sequence[RequestPlanner | LearnedPlanner],
    config: Judges,
    material: JudgingMaterial,
    folder: Path,
    path: Path,
    *,
    show_progress: bool,
) -> JudgeReport:
    """Have the judges make the judgements that the journal lacks, and write the folder once it has all.

    Args:
        planners: Judgements of every judge.
        config: Settings common to all judges.
        material: Queries, documents and pools to judge.
        folder: Folder to write.
        path: The journal.
        show_progress: Show a progress bar.
    """
    with JudgementJournal(path) as journal:
        for planner in planners:
            planner.journal = journal
        reread = [read_again(one, journal) if isinstance(one, RequestPlanner) else 0 for one in planners]
        workers = _work(planners, journal, show_progress=show_progress)
        for worker in workers:
            if isinstance(worker, JudgeWorker):
                worker.stopped = why_stopped(worker)
        caught: frozenset[bytes] = frozenset()
        if config.check_positives and not any(worker.stopped for worker in workers):
            caught = _check(workers, journal, show_progress=show_progress)
        complete = not any(worker.stopped for worker in workers)
        by_judge = export(folder, planners, journal, caught) if complete else outcomes(planners, journal)
        notes = _notes(material, caught)
        return _report(folder, path, workers, reread, by_judge, complete=complete, notes=notes)


def _identity(
    queries: str | Path,
    documents: str | Path,
    pools: str | Path,
    gold: str | Path | None,
    planners: Sequence[PlannedJudgements[AnyJudge]],
    judges: Judges,
) -> dict[str, Any]:
    """Return everything the judgements depend on; budgets and rate limits may change between runs."""
    return {
        "schema_version": SCHEMA_VERSION,
        "step": "judge",
        "settings": {planner.judge.name: planner.description for planner in planners},
        **judges.checking(),
        "input": {
            "queries": source_digest(queries),
            "documents": source_digest(documents),
            "pools": [sha256_of(file) for file in pool_files(pools)],
            **({} if gold is None else {"gold": [sha256_of(file) for file in pool_files(gold)]}),
        },
    }


def _pooling(pools: str | Path) -> list[dict[str, Any]]:
    """Return the step that made the pools; empty for pools of other tools."""
    steps = lineage(pools if Path(pools).is_dir() else Path(pools).parent)
    return steps if steps and steps[-1].get("step") == "pool" else []


def _planner(
    judge: AnyJudge, judges: Judges, material: JudgingMaterial, *, retry_failed: bool
) -> RequestPlanner | LearnedPlanner:
    """Return the planner of a judge; its journal is set once that is open."""
    nothing: Any = None
    if isinstance(judge, Judge):
        return RequestPlanner(judge, judges, material, nothing, retry_failed=retry_failed)
    return LearnedPlanner(judge, judges, material, nothing, retry_failed=retry_failed)


def _check(
    workers: Sequence[JudgeWorker | LearnedWorker], journal: JudgementJournal, *, show_progress: bool
) -> frozenset[bytes]:
    """Show the judges their positives again; see `medteb_mteb.curation.judge.raised`.

    Returns:
        Digests of the passages that raise themselves. A worker stopped here is marked as stopped.
    """
    checked = [
        (worker, check)
        for worker in workers
        if isinstance(worker, JudgeWorker) and (check := check_of(worker.planner, journal)) is not None
    ]
    checks = [check for _, check in checked]
    done = _work(checks, journal, show_progress=show_progress, title="check")
    for (worker, check), checker in zip(checked, done, strict=True):
        worker.stopped = checker.stopped
        worker.tally.checked = check.counts.judgements
    return raised(checks, journal)


def _work(
    planners: Sequence[RequestPlanner | LearnedPlanner],
    journal: JudgementJournal,
    *,
    show_progress: bool,
    title: str = "judge",
) -> list[JudgeWorker | LearnedWorker]:
    missing = [planner.survey().missing for planner in planners]
    with tqdm(total=sum(missing), desc=title, unit="grades", disable=not show_progress) as bar:
        cost_so_far, failures = 0.0, 0

        def progress(*, graded: int, failed: int, cost: float) -> None:
            nonlocal cost_so_far, failures
            cost_so_far, failures = cost_so_far + cost, failures + failed
            bar.set_postfix(spent=f"{cost_so_far:.4g}", failed=failures, refresh=False)
            bar.update(graded + failed)

        workers = [
            JudgeWorker(planner, journal, progress)
            if isinstance(planner, RequestPlanner)
            else LearnedWorker(planner, journal, progress)
            for planner in planners
        ]
        run_workers(workers)
    return workers


def _report(
    folder: Path,
    journal: Path,
    workers: Sequence[JudgeWorker | LearnedWorker],
    reread: Sequence[int],
    by_judge: dict[str, Outcome],
    *,
    complete: bool,
    notes: tuple[str, ...],
) -> JudgeReport:
    results = tuple(
        JudgeResult(
            worker.llm.name,
            by_judge[worker.llm.name],
            bought=worker.tally.bought,
            known=worker.planner.counts.known,
            account=worker.journal.account(worker.llm.name),
            details={
                "read_again": again,
                "asked_again": worker.tally.asked_again,
                "distrusted": dict(sorted(worker.tally.distrusted.items())),
                "suspicious": worker.planner.counts.suspicious,
                "checked": worker.tally.checked,
                "resumed": worker.planner.counts.resumed,
                "faults": dict(sorted(worker.faults.items())),
            },
            stopped=worker.stopped,
        )
        for worker, again in zip(workers, reread, strict=True)
    )
    pairs = workers[0].planner.material.pairs
    return JudgeReport(folder, journal, pairs, results, complete, notes)


def _notes(material: JudgingMaterial, caught: frozenset[bytes]) -> tuple[str, ...]:
    """Return remarks about texts that try to instruct a judge."""
    notes = []
    queries = sum(suspicious(text) for text in material.queries.values())
    if queries:
        notes.append(f"{queries} queries look as if they wanted to instruct a judge; look at their grades.")
    if caught:
        notes.append(
            f"{len(caught)} passages were graded as answers to a query that they cannot answer; they are "
            "marked in judgements.jsonl, and medteb consensus takes none of them for a positive."
        )
    return tuple(notes)


def _dump(content: dict[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False, indent=2) + "\n"
