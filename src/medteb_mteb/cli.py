"""The `medteb` command: parsing and printing; `medteb_mteb.commands` does the work, imported late."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mar_st.commands.version import Version
from mar_st.options import application, command, run
from medteb_mteb.commands.benchmarks import benchmarks as list_benchmarks
from medteb_mteb.commands.editions import edition_app
from medteb_mteb.commands.errors import UserError
from medteb_mteb.commands.leakage import LeakageSettings, leakage
from medteb_mteb.commands.leakage import as_text as leakage_text
from medteb_mteb.commands.options import AsJson, BatchSize, Quiet
from medteb_mteb.commands.validate import validate
from medteb_mteb.curation import build as building
from medteb_mteb.curation.step import add_step
from medteb_mteb.curation.steps import STEPS

if TYPE_CHECKING:
    from medteb_mteb.report import ResultTable

__all__ = ["app", "main"]

EVALUATE, BUILD, STEPS_OF_BUILD = "Evaluate", "Build", "Steps of a build"

app = application(
    "medteb",
    "Evaluate medical text retrieval on MedTEB or your data, and build benchmarks and training data.",
)


@app.callback()
def _root(version: Version = False) -> None:
    del version


@app.command("run", no_args_is_help=True, rich_help_panel=EVALUATE)
def run_command(
    models: Annotated[
        list[str] | None,
        typer.Option("-m", "--model", help="Model known to mteb, or a model folder; may be repeated."),
    ] = None,
    data: Annotated[
        list[Path] | None, typer.Option("--data", help="Data folder in the Hub layout; may be repeated.")
    ] = None,
    more_data: Annotated[
        list[Path] | None, typer.Argument(help="Further data folders, after --data.", metavar="[FOLDER]...")
    ] = None,
    tasks: Annotated[
        list[str] | None, typer.Option("-t", "--task", help="Task known to mteb; may be repeated.")
    ] = None,
    benchmarks: Annotated[
        list[str] | None,
        typer.Option("-b", "--benchmark", help="Benchmark, e.g. 'MedTEB(cmn, mini)'; may be repeated."),
    ] = None,
    output: Annotated[Path, typer.Option("--output-folder", help="Folder to keep results in.")] = Path(
        "results"
    ),
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Evaluate again even if results exist.")
    ] = False,
    batch_size: BatchSize = 32,
    device: Annotated[
        str | None, typer.Option(help="PyTorch device, e.g. cpu or cuda:0; default: a GPU if there is one.")
    ] = None,
    save_predictions: Annotated[
        bool, typer.Option("--save-predictions", help="Save rankings and similarities too.")
    ] = False,
    random_weights: Annotated[
        int | None,
        typer.Option(
            "--random-weights",
            metavar="SEED",
            help="Seed of random weights, for model folders with a config but no weights.",
        ),
    ] = None,
    as_json: AsJson = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print the table as Markdown.")] = False,
    quiet: Quiet = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Show warnings of the libraries.")] = False,
) -> None:
    """Evaluate models on tasks, benchmarks or data folders.

    Prints the scores with 95 % bootstrap intervals over the test items. Results are saved in mteb's own
    format and reused when data and model are the same, so the same command continues an interrupted run.
    Tasks of a benchmark whose data cannot be fetched are left out and listed with the reason. The exit code
    is 1 if an evaluation failed or nothing could be run; the others are saved.
    """
    if as_json and as_markdown:
        raise UserError("choose one of --json and --markdown")
    if more_data and not data:
        raise UserError(f"unexpected argument {str(more_data[0])!r}; data folders come after --data")
    from medteb_mteb.commands.run import RunOptions, run  # lazy: mteb

    outcome = run(
        RunOptions(
            data=[*(data or []), *(more_data or [])],
            tasks=tasks or [],
            benchmarks=benchmarks or [],
            models=models or [],
            output=output,
            overwrite=overwrite,
            batch_size=batch_size,
            device=device,
            save_predictions=save_predictions,
            random_weights=random_weights,
            quiet=quiet,
            verbose=verbose,
        )
    )
    if as_json:
        more = {"errors": outcome.errors, "left_out": outcome.left_out}
        print(json.dumps({**outcome.table.to_json(), **more}, ensure_ascii=False, indent=2))
    elif as_markdown:
        print(outcome.table.to_markdown())
        for line in [*outcome.table.warnings(), *outcome.table.notes()]:
            print(f"medteb: {line}", file=sys.stderr)
    else:
        _print_table(outcome.table)
    for task, reason in outcome.left_out.items():
        print(f"medteb: left out: {task}: {reason}", file=sys.stderr)
    for line in outcome.errors:
        print(f"medteb: failed: {line}", file=sys.stderr)
    if outcome.errors or not outcome.table.entries:
        raise typer.Exit(1)


def _print_table(table: ResultTable) -> None:
    from rich.console import Console  # lazy: rich

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=200)
    console.print(table.to_rich())
    console.print("[low, high]: 95 % bootstrap interval over the test items.", markup=False)
    for line in [*table.comparison_lines(), *table.warnings(), *table.notes()]:
        console.print(line, markup=False)


app.command("benchmarks", rich_help_panel=EVALUATE)(list_benchmarks)
app.command("validate", rich_help_panel=EVALUATE)(validate)
command(app, "leakage", LeakageSettings, leakage, show=leakage_text, group=EVALUATE)
command(app, "build", building.BuildSettings, building.run, show=building.as_text, group=BUILD)
app.add_typer(edition_app(), name="edition", rich_help_panel=BUILD)
for _step in STEPS.values():
    add_step(app, _step, group=STEPS_OF_BUILD)


def main() -> None:
    """Entry point: an error of the user is one line on stderr, with exit code 2."""
    run(app, "medteb")


if __name__ == "__main__":
    main()
