"""`medteb consensus` and `medteb review`: from judgements to labels, and their check by clinicians."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from medteb_mteb.commands.options import AsJson, DocumentsSource, QueriesSource, SampleSeed, TaskOrFolder

review_app = typer.Typer(
    help="Have clinicians check a sample of labels.", no_args_is_help=True, rich_markup_mode=None
)

ExportedSheet = Annotated[Path, typer.Argument(help="Sheet as it was exported.")]


def consensus(
    judgements: Annotated[Path, typer.Argument(help="Judgements: a JSONL file or a folder.")],
    out: Annotated[Path, typer.Argument(help="Folder to write labels.jsonl and agreement.json to.")],
    rule: Annotated[
        str, typer.Option(help="Rule of agreement: unanimous, majority, weighted or graded.")
    ] = "unanimous",
    positive: Annotated[str, typer.Option(help="Comma-separated grades that count as positive.")] = "S,A",
    judge: Annotated[
        list[str] | None, typer.Option(help="Use only this judge; may be repeated; default: all judges.")
    ] = None,
    weight: Annotated[
        list[str] | None,
        typer.Option(help="Weight of a judge as JUDGE=WEIGHT, for the rule 'weighted'; may be repeated."),
    ] = None,
    share: Annotated[
        float, typer.Option(help="Share of the weights that a label must exceed, for the rule 'weighted'.")
    ] = 0.5,
    spread: Annotated[
        int, typer.Option(help="Largest distance between grades, for the rule 'graded'.", min=0)
    ] = 1,
    incomplete: Annotated[
        bool, typer.Option("--incomplete", help="Label pairs even if some judges have not graded them.")
    ] = False,
    keep_suspicious: Annotated[
        bool,
        typer.Option("--keep-suspicious", help="Accept passages that may instruct judges as positives."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Combine the grades of several judges into labels.

    Also reports how well the judges agree.
    """
    from medteb_mteb.curation.labels.consensus import ConsensusRule  # lazy: start-up
    from medteb_mteb.curation.labels.labelling import write_labels  # lazy: numpy

    consensus_rule = ConsensusRule(
        kind=rule,  # type: ignore[arg-type]
        positive=tuple(grade.strip().upper() for grade in positive.split(",")),
        weights=dict(_weight(entry) for entry in weight or ()),
        share=share,
        spread=spread,
        judges=tuple(judge or ()),
        incomplete=incomplete,
        keep_suspicious=keep_suspicious,
    )
    content = write_labels(judgements, out, consensus_rule)
    typer.echo(json.dumps(content, ensure_ascii=False, indent=2) if as_json else _summary(content, out))


@review_app.command("export")
def export_command(
    labels: Annotated[Path, typer.Argument(help="File labels.jsonl, or its folder.")],
    queries: QueriesSource,
    documents: DocumentsSource,
    sheet: Annotated[Path, typer.Argument(help="CSV file to write to.")],
    size: Annotated[int, typer.Option(help="Number of pairs.", min=1)] = 5000,
    seed: SampleSeed = 42,
    positives: Annotated[
        float | None, typer.Option(help="Share of positives in the sample; default: as among the labels.")
    ] = None,
) -> None:
    """Write a sheet of unlabelled pairs for clinicians to fill in."""
    from mar_st.files import counted  # lazy: numpy
    from medteb_mteb.curation.files.read import read_texts  # lazy: yaml
    from medteb_mteb.curation.labels.grades import read_labels  # lazy: start-up
    from medteb_mteb.curation.labels.review import export_review, key_of  # lazy: numpy

    number = export_review(
        read_labels(labels),
        {text.id: text for text in read_texts(queries)},
        {text.id: text for text in read_texts(documents)},
        sheet,
        size=size,
        seed=seed,
        positives=positives,
    )
    typer.echo(
        f"{counted(number, 'pair')} in {sheet}; the labels are in {key_of(sheet)}, which the reviewers must "
        "not see"
    )


@review_app.command("plan")
def plan_command(
    edition: TaskOrFolder,
    sheet: Annotated[Path, typer.Argument(help="CSV or JSONL file to write to.")],
    budget: Annotated[int, typer.Option(help="Number of pairs that the experts can look at.", min=1)],
    minimum: Annotated[int, typer.Option(help="Minimum number of pairs per stratum.", min=1)] = 30,
    by: Annotated[
        str | None,
        typer.Option(help="Field of the queries, such as their type, that divides the strata further."),
    ] = None,
    seed: SampleSeed = 42,
    split: Annotated[str, typer.Option(help="Split to draw from.")] = "test",
    as_json: AsJson = False,
) -> None:
    """Draw labels of an edition for experts to check.

    Writes a sheet with a stratified sample: positives, negatives and disputed pairs are drawn separately. The
    probabilities are stored beside the sheet, so that 'medteb validate' weights the answers.
    """
    from medteb_mteb.commands.edition import resolve  # lazy: start-up
    from medteb_mteb.curation.labels.sampling import plan_sheet  # lazy: start-up
    from medteb_mteb.curation.labels.sheet import key_of  # lazy: start-up
    from medteb_mteb.folders.fields import query_field  # lazy: yaml
    from medteb_mteb.folders.layout import inspect_folder  # lazy: yaml
    from medteb_mteb.folders.problems import FolderError, Problems  # lazy: yaml
    from medteb_mteb.folders.retrieval import read_retrieval  # lazy: yaml

    folder = Path(edition).expanduser()
    layout = inspect_folder(folder if folder.exists() else resolve(edition).path, split)
    if "corpus" not in layout.tables:
        raise FolderError(layout.path, ["holds no corpus; labels of retrieval and reranking are reviewed"])
    data = read_retrieval(layout, Problems(layout.path))
    types = None if by is None else query_field(layout, by)
    strata = plan_sheet(data, sheet, budget, minimum=minimum, types=types, seed=seed)
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in strata], ensure_ascii=False, indent=2))
        return
    from mar_st.files import counted, printable  # lazy: numpy

    typer.echo(f"{'stratum':40} {'pairs':>9} {'drawn':>7} {'probability':>12}")
    for one in strata:
        typer.echo(f"{printable(one.name):40} {one.pairs:9,} {one.drawn:7,} {one.drawn / one.pairs:12.4f}")
    typer.echo(
        f"{counted(sum(one.drawn for one in strata), 'pair')} in {sheet}; the labels are in "
        f"{key_of(sheet)}, which the experts must not see"
    )
    kinds = {one.name.partition(",")[0] for one in strata}
    for missing in sorted({"positive", "negative"} - kinds):
        typer.echo(f"medteb: the edition lists no {missing}s, so nothing will be known about them", err=True)


@review_app.command("adjudicate")
def adjudicate_command(
    sheet: ExportedSheet,
    answered: Annotated[list[Path], typer.Argument(help="Filled-in sheets, one file per expert.")],
    out: Annotated[Path, typer.Option(help="CSV or JSONL file to write to.")],
) -> None:
    """List the pairs on which experts differ.

    Writes a sheet with their answers and a column for the decision.
    """
    from mar_st.files import counted  # lazy: numpy
    from medteb_mteb.curation.labels.experts import write_disagreements  # lazy: numpy

    number = write_disagreements(sheet, _by_name(answered), out)
    typer.echo(f"{counted(number, 'pair')} in {out}; fill in the column 'decision'")


@review_app.command("import")
def import_command(
    sheet: ExportedSheet,
    answered: Annotated[list[Path], typer.Argument(help="Filled-in sheets, one file per clinician.")],
    as_json: AsJson = False,
) -> None:
    """Compare the answers of clinicians with the labels."""
    from mar_st.files import counted  # lazy: numpy
    from medteb_mteb.curation.labels.review import import_review  # lazy: numpy

    report = import_review(sheet, _by_name(answered))
    if as_json:
        typer.echo(json.dumps(report.to_json(), ensure_ascii=False, indent=2))
        return
    typer.echo(f"{counted(report.pairs, 'pair')} answered by all, {report.unanswered} left out")
    typer.echo(f"agreement with the labels {report.agreement:.1%} [{report.low:.1%}, {report.high:.1%}]")
    for name, rate in report.by_reviewer.items():
        typer.echo(f"  {name} {rate:.1%}")
    if report.kappa is not None:
        typer.echo(
            f"Fleiss' kappa {report.kappa:.3f} among them, {report.kappa_with_labels:.3f} with the labels"
        )
    shares = {"positives": report.positives_confirmed, "negatives": report.negatives_confirmed}
    for what, confirmed in shares.items():
        if confirmed is not None:
            typer.echo(f"{what} confirmed {confirmed:.1%}")


def _by_name(answered: list[Path]) -> dict[str, Path]:
    from medteb_mteb.curation.files.records import BuildError  # lazy: start-up

    names = {path.stem: path for path in answered}
    if len(names) < len(answered):
        raise BuildError("Two of the files have one name; name each after its reviewer.")
    return names


def _weight(entry: str) -> tuple[str, float]:
    from medteb_mteb.curation.files.records import BuildError  # lazy: start-up

    name, _, number = entry.rpartition("=")
    try:
        return name, float(number)
    except ValueError as error:
        raise BuildError(f"--weight takes JUDGE=WEIGHT, for instance deepseek=2; got {entry!r}.") from error


def _summary(content: dict[str, Any], out: Path) -> str:
    from mar_st.files import counted  # lazy: numpy

    lines = [f"{name:40} {number:8,}" for name, number in content["labels"].items()]
    report = content["agreement"]
    lines += [
        f"{judge} gave no grade for {counted(number, 'pair')}"
        for judge, number in report["missing"].items()
        if number
    ]
    if "note" in report:
        return "\n".join([*lines, report["note"], f"labels: {out / 'labels.jsonl'}"])
    names = {
        "agreement": "agreement of two judges",
        "fleiss_kappa": "Fleiss' kappa",
        "krippendorff_alpha": "Krippendorff's alpha",
        "gwet_ac1": "Gwet's AC1",
    }
    lines.append(f"{', '.join(report['judges'])}: {counted(report['pairs'], 'pair')} graded by two or more")
    for kind, what in (("labels", "positive or not"), ("grades", "grades")):
        for name, shown in names.items():
            value, low, high = report[kind][name]
            number = "not defined" if value is None else f"{value:.3f}"
            if low is not None and value is not None:
                number += f" [{low:.3f}, {high:.3f}]"
            lines.append(f"  {what:16} {shown:24} {number}")
    rates = ", ".join(f"{judge} {rate:.1%}" for judge, rate in report["positive_rate"].items())
    return "\n".join([*lines, f"positive: {rates}", f"labels: {out / 'labels.jsonl'}"])
