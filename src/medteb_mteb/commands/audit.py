"""`medteb audit`: judge an existing benchmark again."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from medteb_mteb.commands.judge import estimate_text
from medteb_mteb.commands.options import AlreadyAnonymous, AsJson, DryRun, Quiet, RankedFolder, SampleSeed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from medteb_mteb.curation.labels.audit import Audit, Benchmark
    from medteb_mteb.curation.labels.consensus import ConsensusRule
    from medteb_mteb.curation.labels.grades import Label


def audit(
    folder: RankedFolder,
    out: Annotated[Path, typer.Argument(help="Folder to write the audit to.")],
    judges: Annotated[Path, typer.Option(help="YAML file of the judges, as for 'medteb judge'.")],
    retriever: Annotated[
        list[str] | None,
        typer.Option(
            "-r",
            "--retriever",
            help="Retriever, as for 'medteb pool'; default: gte-multilingual-base; may be repeated.",
        ),
    ] = None,
    depth: Annotated[int, typer.Option(help="Number of documents to judge per query.", min=1)] = 50,
    queries: Annotated[
        int | None, typer.Option(help="Number of queries to audit, sampled with --seed; default: all.", min=1)
    ] = None,
    seed: SampleSeed = 42,
    rule: Annotated[str, typer.Option(help="Rule of agreement, as for 'medteb consensus'.")] = "unanimous",
    keep_false_positives: Annotated[
        bool,
        typer.Option(
            "--keep-false-positives", help="Only add positives to the corrected edition; remove none."
        ),
    ] = False,
    journal: Annotated[
        Path | None, typer.Option(help="Journal of paid judgements, as for 'medteb judge'.")
    ] = None,
    already_anonymous: AlreadyAnonymous = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Judge the top documents of an existing benchmark again.

    Reports the relevant documents that its qrels miss.

    The same command resumes an interrupted audit, and no judgement is paid for twice. The exit code is 1 if
    judgements are still missing.
    """
    from mar_st.teachers.store import store_root  # lazy: torch
    from medteb_mteb.curation import judge as judging  # lazy: numpy
    from medteb_mteb.curation.files.folder import write_text  # lazy: yaml
    from medteb_mteb.curation.labels.agreement import agreement  # lazy: numpy
    from medteb_mteb.curation.labels.audit import audit as compare  # lazy: numpy
    from medteb_mteb.curation.labels.audit import read_benchmark  # lazy: numpy
    from medteb_mteb.curation.labels.consensus import ConsensusRule, consensus  # lazy: start-up
    from medteb_mteb.curation.labels.grades import read_judging  # lazy: start-up
    from medteb_mteb.curation.pooling.pool import Pooling, open_retriever, pool  # lazy: yaml

    benchmark = _part(read_benchmark(folder), queries, seed)
    consensus_rule = ConsensusRule(kind=rule)  # type: ignore[arg-type]
    query_file, document_file = _write_texts(benchmark, out / "input")
    names = retriever or ["Alibaba-NLP/gte-multilingual-base"]
    pools = pool(
        list(benchmark.queries.values()),
        list(benchmark.documents.values()),
        [open_retriever(name, store=store_root(out), show_progress=not quiet) for name in names],
        out / "pools",
        Pooling(size=depth, depth=depth),
        show_progress=not quiet,
    )
    inputs = (query_file, document_file, pools)
    journal_file = journal or out / "judgements.sqlite"
    if dry_run:
        typer.echo(estimate_text(judging.estimate(*inputs, judges, journal=journal_file, out=out / "judged")))
        return
    report = judging.judge(
        *inputs,
        out / "judged",
        judges,
        journal=journal_file,
        already_anonymous=already_anonymous,
        show_progress=not quiet,
    )
    if not report.complete:
        typer.echo("medteb: judgements are missing; the same command resumes", err=True)
        raise typer.Exit(1)
    graded = read_judging(out / "judged")
    pairs = [pair[:2] for pair in graded.failed]
    labels = consensus(graded.judgements, consensus_rule, judges=graded.judges, pairs=pairs)
    comparison = compare(benchmark, labels)
    content = {
        "folder": str(folder),
        "retrievers": names,
        "depth": depth,
        "rule": rule,
        **comparison.to_json(),
    }
    if len(graded.judges) > 1:
        content["agreement"] = agreement(graded.judgements).to_json()
    report_text = json.dumps(content, ensure_ascii=False, indent=2)
    write_text(out / "audit.json", report_text + "\n")
    edition = out / f"{folder.resolve().name}-corrected"
    provenance = _provenance(out / "judged", consensus_rule, labels, content)
    written = _write_edition(edition, benchmark, labels, provenance, keep_false_positives)
    typer.echo(report_text if as_json else _summary(comparison, out, edition if written else None))


def _write_edition(
    edition: Path,
    benchmark: Benchmark,
    labels: Sequence[Label],
    provenance: Mapping[str, Any],
    keep_false_positives: bool,
) -> bool:
    """Write the corrected edition and return True; otherwise say why it cannot be written."""
    from medteb_mteb.curation.edition.corrected import write_corrected  # lazy: numpy
    from medteb_mteb.curation.files.records import BuildError  # lazy: start-up

    try:
        write_corrected(
            benchmark,
            labels,
            edition,
            name=edition.name,
            provenance=provenance,
            keep_false_positives=keep_false_positives,
        )
    except BuildError as error:
        stale = f" {edition} is of an earlier audit." if edition.exists() else ""
        typer.echo(f"medteb: no corrected edition: {error}{stale}", err=True)
        return False
    return True


def _provenance(
    judged: Path, rule: ConsensusRule, labels: Sequence[Label], content: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the provenance of the labels, in the form of `provenance.json`."""
    from medteb_mteb.curation.labels.consensus import counts  # lazy: start-up
    from medteb_mteb.curation.labels.provenance import provenance_of_judging  # lazy: start-up

    agreed = content.get("agreement", {}).get("labels", {})
    rule_fields = {"rule": rule.kind, "positive": list(rule.positive), **rule.options()}
    record = {**rule_fields, "labels": counts(labels), "agreement": agreed}
    return {**provenance_of_judging(judged), "consensus": [record]}


def _part(benchmark: Benchmark, number: int | None, seed: int) -> Benchmark:
    """Return the benchmark with some of its queries."""
    if number is None or number >= len(benchmark.queries):
        return benchmark
    drawn = set(random.Random(seed).sample(sorted(benchmark.queries), number))
    return replace(benchmark, queries={name: q for name, q in benchmark.queries.items() if name in drawn})


def _write_texts(benchmark: Benchmark, folder: Path) -> tuple[Path, Path]:
    """Write queries and documents to files for the judging, and return their paths."""
    from medteb_mteb.curation.files.folder import refuse_within  # lazy: yaml
    from medteb_mteb.curation.files.layout import write_texts  # lazy: yaml

    refuse_within(folder, benchmark.folder)
    queries, documents = folder / "queries.jsonl", folder / "documents.jsonl"
    write_texts(queries, benchmark.queries.values(), titles=False)
    write_texts(documents, benchmark.documents.values(), titles=True)
    return queries, documents


def _summary(comparison: Audit, out: Path, edition: Path | None) -> str:
    names = {
        "judged": "judged, with a label",
        "undecided": "judges disagree",
        "released": "positives as released",
        "found": "positives by the judges",
        "false_positives": "false positives",
        "false_negatives": "false negatives",
    }
    lines = [f"{len(comparison.queries)} queries; per query:"]
    for name, shown in names.items():
        mean, low, high = comparison.means[name]
        lines.append(f"  {shown:26} {mean:7.2f} [{low:.2f}, {high:.2f}]")
    lines.append(f"queries with a false negative: {comparison.affected:.1%}")
    lines.append(f"query by query: {out / 'audit.json'}")
    if edition is not None:
        lines.append(f"corrected edition: {edition}")
    return "\n".join(lines)
