"""Triples (query, positives, negatives) of pools, by two-list judging (MAR paper, Table 23)."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medteb_mteb.curation.files.folder import alone, claim, lineage, read_json, write_json
from medteb_mteb.curation.files.read import MANIFEST, source_digest
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.judge.injection import suspicious
from medteb_mteb.curation.judge.pools import pool_files
from medteb_mteb.curation.llm import (
    LLM,
    Account,
    Cost,
    Generation,
    added,
    answers_path,
    estimate_cost,
    generate,
    load_llm,
    refuse_unanswered,
)
from medteb_mteb.curation.training.answer import Lists, read_lists
from medteb_mteb.curation.training.leaks import HeldOut
from medteb_mteb.curation.training.material import PoolTexts, read_pool_texts
from medteb_mteb.curation.training.plan import Batch, QueryCandidates, TwoLists, batches
from medteb_mteb.curation.training.prompt import prompt_version
from medteb_mteb.curation.training.rows import (
    NO_CANDIDATES,
    REPEATED_QUERY,
    TEST_QUERY,
    ShardRows,
    TripleWriter,
)
from medteb_mteb.curation.training.shards import Shards
from medteb_mteb.editions import sha256_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from medteb_mteb.curation.llm import Prompt

__all__ = ["QUERIES_PER_SHARD", "TriplesReport", "estimate_triples", "make_triples"]

SCHEMA_VERSION = 1
#: Queries that are judged between two writes.
QUERIES_PER_SHARD = 2000
OUTPUT_NAMES = ("triples", "pairs", "labels", "dropped", "failed")


@dataclass(frozen=True)
class TriplesReport:
    """Report of making triples.

    Attributes:
        folder: Folder of the output.
        journal: The journal of the answers.
        counts: Queries, triples, pairs (queries without a negative), positives, negatives, prompts, documents
            that an answer left out, and the like.
        dropped: Number of dropped queries by reason.
        failed: Number of prompts without a valid answer, by reason.
        known: Number of answers already in the journal.
        bought: Number of answers received in this run.
        account: Cost of the LLM in the journal, over all runs.
        faults: Number of attempts that failed temporarily, by reason.
        stopped: Why the run ended early; empty if it did not.
        notes: Points to check.
    """

    folder: Path
    journal: Path
    counts: dict[str, int]
    dropped: dict[str, int]
    failed: dict[str, int]
    known: int = 0
    bought: int = 0
    account: Account = field(default_factory=Account)
    faults: dict[str, int] = field(default_factory=dict)
    stopped: str = ""
    notes: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Return True if nothing is left to ask for."""
        return not self.stopped

    def to_json(self) -> dict[str, Any]:
        """Return JSON-ready content."""
        content = {**asdict(self), "folder": str(self.folder), "journal": str(self.journal)}
        return {**content, "notes": list(self.notes), "complete": self.complete}


def make_triples(
    queries: str | Path,
    documents: str | Path,
    pools: str | Path,
    out: str | Path,
    llm: LLM | str | Path,
    how: TwoLists | None = None,
    *,
    held_out: HeldOut | None = None,
    journal: str | Path | None = None,
    already_anonymous: bool = False,
    retry_failed: bool = False,
    shard: int = QUERIES_PER_SHARD,
    show_progress: bool = True,
) -> TriplesReport:
    """Have an LLM sort the documents of pools into two lists, and write what `mar train` reads.

    `OUT/triples.jsonl` has queries with negatives, `OUT/pairs.jsonl` those without, `OUT/labels.jsonl` all
    labels, `OUT/dropped.jsonl` queries that make neither, `OUT/failed.jsonl` prompts without a good answer;
    a file without rows is not written. Nothing is bought twice; a resumed run writes the same bytes.

    Args:
        queries: Queries, see `read_texts`.
        documents: Documents, see `read_texts`.
        pools: Documents to judge for each query, best ranked first, see `read_pools`.
        out: Folder to write.
        llm: The LLM, or its YAML file.
        how: Settings.
        held_out: Queries that models will be tested on; near-duplicates of them are dropped, unjudged.
        journal: The journal, see `answers_path`.
        already_anonymous: Also send texts that were not processed by the anonymiser.
        retry_failed: Ask again, once, for everything that failed in earlier runs.
        shard: Number of queries judged between two writes.
        show_progress: Show progress bars.

    Raises:
        BuildError: The input cannot be used, texts are not anonymised, an API key is missing, the folder or
            the journal belongs to something else, is in use or cannot be written, or every prompt failed.
        FolderError: The input has unusable rows.
    """
    how, tests = how or TwoLists(), held_out or HeldOut()
    model = llm if isinstance(llm, LLM) else load_llm(llm)
    material = read_pool_texts(
        queries, documents, pools, depth=how.depth, already_anonymous=already_anonymous
    )
    model.key()
    folder, path = Path(out), answers_path(out, journal)
    identity = {
        "schema_version": SCHEMA_VERSION,
        "step": "triples",
        "settings": json.loads(json.dumps({**how.settings(), "llm": model.settings(prompt_version())})),
        "input": _input(queries, documents, pools, tests),
        "shard": shard,
    }
    with alone(folder):
        claim(folder, identity)
        shards = Shards(folder, OUTPUT_NAMES)
        if (folder / MANIFEST).is_file() and not retry_failed:
            shards.forget()
            manifest = read_json(folder / MANIFEST)
            return TriplesReport(folder, path, manifest["counts"], manifest["dropped"], manifest["failed"])
        work = _Work(material, model, path, how, tests, retry_failed, show_progress)
        report = work.run(shards, shard, TriplesReport(folder, path, {}, {}, {}))
        if report.complete:
            refuse_unanswered(report.counts.get("prompts", 0), report.failed)
            # If failed prompts were sent again, a manifest exists that is no longer valid from here on.
            (folder / MANIFEST).unlink(missing_ok=True)
            content = {
                **identity,
                "already_anonymous": already_anonymous,
                "read": report.counts["queries"],
                "kept": report.counts.get("triples", 0) + report.counts.get("pairs", 0),
                "counts": report.counts,
                "dropped": report.dropped,
                "failed": report.failed,
                "before": {"queries": lineage(queries), "documents": lineage(documents)},
                "files": shards.join(),
            }
            write_json(folder / MANIFEST, content)
            shards.forget()
    return report


def estimate_triples(
    queries: str | Path,
    documents: str | Path,
    pools: str | Path,
    out: str | Path,
    llm: LLM | str | Path,
    how: TwoLists | None = None,
    *,
    held_out: HeldOut | None = None,
    journal: str | Path | None = None,
    retry_failed: bool = False,
    shard: int = QUERIES_PER_SHARD,
) -> Cost:
    """Estimate the requests and cost of `make_triples`; nothing is sent, and no journal is created.

    Repeated requests for invalid answers are not included.

    Raises:
        BuildError: The input or the journal cannot be used.
        FolderError: The input has unusable rows.
    """
    how, tests = how or TwoLists(), held_out or HeldOut()
    model = llm if isinstance(llm, LLM) else load_llm(llm)
    material = read_pool_texts(queries, documents, pools, depth=how.depth, already_anonymous=True)
    total: Cost | None = None
    for _, portion in material.shards(shard):
        leaks = tests.leaks([candidates.text for candidates in portion])
        prompts = [
            batch.prompt
            for row, candidates in enumerate(portion)
            if row not in leaks
            for batch in batches(candidates, material.texts, how)
        ]
        cost = estimate_cost(
            prompts, model, answers_path(out, journal), version=prompt_version(), retry_failed=retry_failed
        )
        total = cost if total is None else added((total, cost))
    if total is None:
        raise BuildError(f"{pools} holds no queries.")
    return total


class _Work:
    """Request, read and write the remaining shards."""

    def __init__(
        self,
        material: PoolTexts,
        llm: LLM,
        journal: Path,
        how: TwoLists,
        held_out: HeldOut,
        retry_failed: bool,
        show_progress: bool,
    ) -> None:
        self.material, self.llm, self.journal, self.how = material, llm, journal, how
        self.held_out, self.retry_failed, self.show_progress = held_out, retry_failed, show_progress
        self.writer = TripleWriter(material.texts, how)
        self.faults: Counter[str] = Counter()

    def run(self, shards: Shards, size: int, report: TriplesReport) -> TriplesReport:
        total = -(-len(self.material.queries) // size)
        suspects = 0
        for number, portion in self.material.shards(size):
            done = shards.finished(number)
            if done is not None and not (self.retry_failed and any(n.startswith("failed:") for n in done)):
                continue
            suspects += sum(suspicious(candidates.text) for candidates in portion)
            rows, planned = self._plan(portion)
            generation = self._ask(planned, f"triples {number + 1}/{total}")
            if generation is not None:
                self.faults.update(generation.faults)
                report = replace(
                    report,
                    known=report.known + generation.known,
                    bought=report.bought + generation.bought,
                    account=generation.account,
                    faults=dict(sorted(self.faults.items())),
                    stopped=generation.stopped,
                )
                if generation.stopped:
                    break
                for candidates, prompts in planned:
                    self.writer.add(rows, candidates, prompts, generation.answers, generation.failed)
            shards.write(number, rows.files, rows.counts)
        notes: tuple[str, ...] = ()
        if suspects:
            notes = (f"{suspects} queries look as if they wanted to instruct an LLM; look at their triples.",)
        counts, dropped, failed = _numbers(shards.counts())
        return replace(report, counts=counts, dropped=dropped, failed=failed, notes=notes)

    def _plan(
        self, portion: Sequence[QueryCandidates]
    ) -> tuple[ShardRows, list[tuple[QueryCandidates, list[Batch]]]]:
        """Drop queries that need no judgement, and return the dropped rows and the prompts of the others."""
        rows = ShardRows()
        rows.counts["queries"] += len(portion)
        leaks = self.held_out.leaks([candidates.text for candidates in portion])
        planned = []
        for row, candidates in enumerate(portion):
            for name, text in self.material.repeated.get(candidates.query, ()):
                rows.counts["queries"] += 1
                rows.drop(name, text, REPEATED_QUERY, candidates.query)
            if row in leaks:
                rows.drop(candidates.query, candidates.text, TEST_QUERY, leaks[row])
            elif not candidates.documents:
                rows.drop(candidates.query, candidates.text, NO_CANDIDATES)
            else:
                planned.append((candidates, list(batches(candidates, self.material.texts, self.how))))
        return rows, planned

    def _ask(self, planned: list[tuple[QueryCandidates, list[Batch]]], name: str) -> Generation[Lists] | None:
        known = {batch.key: batch for _, prompts in planned for batch in prompts}
        if not known:
            return None

        def read(prompt: Prompt, content: str) -> Lists:
            batch = known[prompt.key]
            return read_lists(content, batch.ids, batch.control)

        return generate(
            [batch.prompt for batch in known.values()],
            self.llm,
            self.journal,
            version=prompt_version(),
            read=read,
            retry_failed=self.retry_failed,
            show_progress=self.show_progress,
            name=name,
        )


def _input(
    queries: str | Path, documents: str | Path, pools: str | Path, held_out: HeldOut
) -> dict[str, Any]:
    return {
        "queries": source_digest(queries),
        "documents": source_digest(documents),
        "pools": [sha256_of(file) for file in pool_files(pools)],
        "against": held_out.digest(),
    }


def _numbers(counts: Counter[str]) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """Return the counts of all shards as the fields of a report: plain ones, dropped, failed."""

    def reasons(prefix: str) -> dict[str, int]:
        return {n.removeprefix(prefix): c for n, c in sorted(counts.items()) if n.startswith(prefix)}

    plain = {name: number for name, number in sorted(counts.items()) if ":" not in name}
    return plain, reasons("dropped:"), reasons("failed:")
