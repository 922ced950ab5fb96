"""Synonym STS, from a dictionary and queries to an edition and training rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medteb_mteb.curation.edition.describe import gathered
from medteb_mteb.curation.files.place import placing, refuse_taken
from medteb_mteb.curation.files.read import read_texts, source_digest
from medteb_mteb.curation.files.records import BuildError, Dropped
from medteb_mteb.curation.llm import answers_path, estimate_cost, generate, load_llm, refuse_private
from medteb_mteb.curation.llm.config import LLM
from medteb_mteb.curation.sts.checks import check
from medteb_mteb.curation.sts.dictionary import read_dictionary
from medteb_mteb.curation.sts.prompt import REWRITE_KINDS, prompt_version, read_rewrites, render
from medteb_mteb.curation.sts.select import select
from medteb_mteb.curation.sts.split import split_by_entry
from medteb_mteb.curation.sts.write import (
    OUTPUT_FILES,
    TASK,
    Rewritten,
    write_edition,
    write_log,
    write_training,
)
from medteb_mteb.editions import load_edition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from medteb_mteb.curation.files.sources import TextSource
    from medteb_mteb.curation.llm import Account, Cost, Generation, Prompt
    from medteb_mteb.curation.sts.dictionary import Dictionary
    from medteb_mteb.curation.sts.select import Selection
    from medteb_mteb.curation.sts.settings import StsSettings
    from medteb_mteb.curation.sts.split import QuerySplit
    from medteb_mteb.curation.training.leaks import HeldOut
    from medteb_mteb.editions import Edition

__all__ = ["StsEstimate", "StsReport", "estimate", "sts"]

STEP_NAME = "sts"


@dataclass(frozen=True)
class StsEstimate:
    """Requests and cost of a call of `sts`.

    Attributes:
        queries: Number of given queries.
        dropped: Number of queries that are not rewritten, by reason, see `Selection`.
        entries: Number of entries of the dictionary.
        cost: Requests, tokens and cost of the others.
    """

    queries: int
    dropped: dict[str, int]
    entries: int
    cost: Cost

    def to_json(self) -> dict[str, Any]:
        """Return the content as JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class StsReport:
    """Report of a call of `sts`.

    Attributes:
        folder: The folder of data.
        journal: The journal of the answers.
        queries: Number of given queries.
        dropped: Number of queries dropped before the checks, by reason: those of `Selection`, and
            `failed-...` without a valid answer.
        rewrites: Number of rewrites by kind: valid ones (`good`), and the others by reason.
        bought: Number of answers received in this run.
        known: Number of answers already in the journal.
        account: Cost of the LLM in the journal, over all runs.
        stopped: Why requests were not sent; then nothing is written. Empty if all were sent.
        edition: The edition, if it was written.
        triples: Number of rows of `train/sts.jsonl`.
        statistics: Numbers of the split and of dropped items.
    """

    folder: Path
    journal: Path
    queries: int
    dropped: dict[str, int]
    rewrites: dict[str, dict[str, int]]
    bought: int
    known: int
    account: Account
    stopped: str = ""
    edition: Edition | None = None
    triples: int = 0
    statistics: dict[str, int] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Return True if the data are written."""
        return not self.stopped

    def to_json(self) -> dict[str, Any]:
        """Return the content as JSON values."""
        content = {
            name: getattr(self, name) for name in ("queries", "dropped", "rewrites", "bought", "known")
        }
        content |= {"folder": str(self.folder), "journal": str(self.journal), "account": asdict(self.account)}
        content |= {"complete": self.complete, "stopped": self.stopped}
        if self.edition is not None:
            content["edition"] = {"digest": self.edition.digest, "counts": self.edition.counts}
            content |= {"triples": self.triples, "statistics": self.statistics}
        return content


def estimate(
    dictionary: str | Path,
    queries: str | Path,
    out: str | Path,
    llm: LLM | str | Path,
    how: StsSettings,
    *,
    journal: str | Path | None = None,
    retry_failed: bool = False,
) -> StsEstimate:
    """Estimate the requests and cost of `sts`; nothing is sent, and no journal is created.

    Raises:
        BuildError: The input or the journal cannot be used.
        FolderError: The input has unusable rows.
    """
    model = llm if isinstance(llm, LLM) else load_llm(llm)
    terms, selection, total = _select(dictionary, queries, how)
    cost = estimate_cost(
        _prompts(selection, how),
        model,
        answers_path(out, journal),
        version=prompt_version(),
        retry_failed=retry_failed,
    )
    return StsEstimate(total, selection.reasons, len(terms.entries), cost)


def sts(
    dictionary: str | Path,
    queries: str | Path,
    out: str | Path,
    llm: LLM | str | Path,
    how: StsSettings,
    *,
    journal: str | Path | None = None,
    already_anonymous: bool = False,
    retry_failed: bool = False,
    training_queries: Sequence[str] = (),
    held_out: HeldOut | None = None,
    sources: Sequence[TextSource] = (),
    show_progress: bool = True,
) -> StsReport:
    """Write `out/MedTEBSTS`, `out/train/sts.jsonl`, and `out/sts` with the outcome of every query.

    For each query that has a term of the dictionary the LLM writes three questions, which are checked; a test
    query is paired with one of them, drawn at random, a training query with all. With `MEDTEB_DATA=out` mteb
    scores models on the edition. All answers are in the journal and never requested again; the same answers
    give the same bytes, however often the run was interrupted.

    Args:
        dictionary: See `read_dictionary`.
        queries: See `read_texts`.
        out: Folder of data, to which `assemble` may have written, too.
        llm: The LLM, or its YAML file.
        how: Settings.
        journal: The journal, see `answers_path`.
        already_anonymous: Also send queries that were not processed by the anonymiser.
        retry_failed: Ask again for everything that failed in earlier runs.
        training_queries: Queries that models were trained on, which must not be in the test.
        held_out: Queries of other tests; near-duplicates of them are left out of training.
        sources: Sources of the queries and the dictionary, in addition to those of the queries' folder.
        show_progress: Show a progress bar.

    Raises:
        BuildError: The input cannot be used, queries are not anonymised, an API key is missing, the folder is
            in use, no query has a term, or the rewrites do not suffice for a test.
        FolderError: The input has unusable rows.
    """
    model = llm if isinstance(llm, LLM) else load_llm(llm)
    folder, path = Path(out), answers_path(out, journal)
    refuse_taken(folder, STEP_NAME, OUTPUT_FILES)
    recorded = gathered([queries], sources)
    terms, selection, total = _select(dictionary, queries, how)
    if not already_anonymous:
        refuse_private({"queries": [one.query for one in selection.candidates]})
    model.key()
    generation = generate(
        _prompts(selection, how),
        model,
        path,
        version=prompt_version(),
        read=read_rewrites,
        retry_failed=retry_failed,
        show_progress=show_progress,
        name=STEP_NAME,
    )
    rows = _checked(selection, generation, terms, how)
    report = _report(folder, path, total, selection, generation, rows)
    if not generation.complete:
        return report
    sides = _split(rows, how, training_queries, held_out)
    statistics = _statistics(report, terms, rows, selection, sides)
    provenance = {
        "rewriter": model.settings(prompt_version()),
        "settings": how.to_json(),
        "input": {"dictionary": source_digest(dictionary), "queries": source_digest(queries)},
    }
    writer = {"name": model.name, **provenance["rewriter"], "answered": list(generation.answered)}
    dropped = _dropped_rows(selection, generation)
    triples = _write(
        folder, rows, sides, how, statistics, provenance, {**recorded, "writers": [writer]}, dropped
    )
    return replace(report, edition=load_edition(folder / TASK), triples=triples, statistics=statistics)


def _report(
    folder: Path,
    journal: Path,
    queries: int,
    selection: Selection,
    generation: Generation[dict[str, str]],
    rows: Sequence[Rewritten],
) -> StsReport:
    """Return the report of the rewrites, before an edition is made of them."""
    return StsReport(
        folder,
        journal,
        queries=queries,
        dropped={**selection.reasons, **_failures(generation)},
        rewrites=_outcomes(rows),
        bought=generation.bought,
        known=generation.known,
        account=generation.account,
        stopped=generation.stopped,
    )


def _write(
    folder: Path,
    rows: Sequence[Rewritten],
    sides: QuerySplit,
    how: StsSettings,
    statistics: dict[str, int],
    provenance: Mapping[str, Any],
    record: Mapping[str, Any],
    dropped: Sequence[Mapping[str, Any]],
) -> int:
    """Write all files, complete the statistics, and return the number of training triples."""
    by_id = {row.id: row for row in rows}
    with placing(folder, STEP_NAME, OUTPUT_FILES) as part:
        counts = write_training(part, (by_id[name] for name in sides.train))
        statistics |= {f"training queries {what}": n for what, n in counts.items() if n and what != "triples"}
        drawn = write_edition(part, rows, sides, how, statistics, record, **provenance)
        write_log(part, rows, sides, drawn, dropped)
    return counts["triples"]


def _select(
    dictionary: str | Path, queries: str | Path, how: StsSettings
) -> tuple[Dictionary, Selection, int]:
    terms = read_dictionary(dictionary)
    texts = list(read_texts(queries))
    selection = select(
        texts,
        terms,
        tolerance=how.tolerance,
        per_entry=how.per_entry,
        limit=how.limit,
        seed=how.seed,
    )
    if not selection.candidates:
        reasons = ", ".join(f"{reason} {count}" for reason, count in selection.reasons.items())
        raise BuildError(
            f"None of {len(texts)} queries can be rewritten ({reasons}). Give a dictionary whose 'origin' "
            "terms occur in the queries."
        )
    return terms, selection, len(texts)


def _prompts(selection: Selection, how: StsSettings) -> list[Prompt]:
    return [render(one, how.tolerance) for one in selection.candidates]


def _checked(
    selection: Selection, generation: Generation[dict[str, str]], terms: Dictionary, how: StsSettings
) -> list[Rewritten]:
    rows = []
    for one in selection.candidates:
        rewrites = generation.answers.get(one.query.id)
        if rewrites is not None:
            rows.append(Rewritten(one, rewrites, check(one, rewrites, terms.terms, how.tolerance)))
    return rows


def _failures(generation: Generation[dict[str, str]]) -> dict[str, int]:
    return dict(sorted(Counter(f"failed-{reason}" for reason in generation.failed.values()).items()))


def _outcomes(rows: Sequence[Rewritten]) -> dict[str, dict[str, int]]:
    counts = {kind: Counter(row.dropped.get(kind, "good") for row in rows) for kind in REWRITE_KINDS}
    return {kind: dict(sorted(count.items())) for kind, count in counts.items()}


def _split(
    rows: Sequence[Rewritten], how: StsSettings, training_queries: Sequence[str], held_out: HeldOut | None
) -> QuerySplit:
    """Split the queries that have a good rewrite into test and training."""
    usable = [row for row in rows if row.good]
    if not usable:
        raise BuildError(
            f"None of {len(rows)} rewritten queries has a valid rewrite. --json prints why they were "
            "dropped; try another model."
        )
    drawable = {kind for kind, share in zip(REWRITE_KINDS, how.probabilities, strict=True) if share > 0}
    return split_by_entry(
        [row.candidate for row in usable],
        {row.id: [row.candidate.query.full, *row.good.values()] for row in usable},
        whole={row.id for row in usable if drawable <= set(row.good)},
        test=how.test,
        threshold=how.threshold,
        seed=how.seed,
        training_queries=training_queries,
        held_out=held_out,
    )


def _statistics(
    report: StsReport, terms: Dictionary, rows: Sequence[Rewritten], selection: Selection, sides: QuerySplit
) -> dict[str, int]:
    placed = {*sides.test, *sides.train, *sides.left_out}
    left_out = Counter(sides.left_out.values())
    numbers = {
        "dictionary entries": len(terms.entries),
        "dictionary entries repeated": terms.repeated,
        "queries": report.queries,
        **{f"queries dropped, {reason}": count for reason, count in report.dropped.items()},
        "queries rewritten": len(rows),
        "rewritten queries with several terms": selection.several,
        **{
            f"{kind} dropped, {reason}": count
            for kind, outcomes in report.rewrites.items()
            for reason, count in outcomes.items()
            if reason != "good"
        },
        "queries without a good rewrite": sum(row.id not in placed for row in rows),
        **{f"queries in neither part, {reason}": count for reason, count in sorted(left_out.items())},
        "dictionary entries of the test": sides.entries[0],
        "dictionary entries of training": sides.entries[1],
        "training queries": len(sides.train),
    }
    return {name: number for name, number in numbers.items() if number}


def _dropped_rows(selection: Selection, generation: Generation[dict[str, str]]) -> list[dict[str, Any]]:
    failed = [
        Dropped(one.query, f"failed-{generation.failed[one.query.id]}")
        for one in selection.candidates
        if one.query.id in generation.failed
    ]
    return [item.to_json() for item in (*selection.dropped, *failed)]
