"""The `medteb` command: parsing and printing; `medteb_mteb.commands` does the work, imported late."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mar_st.commands.version import Version
from mar_st.errors import os_error_message
from medteb_mteb.commands.anonymize import anonymize
from medteb_mteb.commands.assemble import assemble
from medteb_mteb.commands.benchmarks import benchmarks as list_benchmarks
from medteb_mteb.commands.build import build_app
from medteb_mteb.commands.consensus import consensus, review_app
from medteb_mteb.commands.dedup import dedup
from medteb_mteb.commands.diversify import diversify
from medteb_mteb.commands.edition_app import edition_app
from medteb_mteb.commands.errors import UserError
from medteb_mteb.commands.options import AsJson, BatchSize, Quiet
from medteb_mteb.commands.redundancy import leakage, redundancy
from medteb_mteb.commands.renamed import explain
from medteb_mteb.commands.report import report_app
from medteb_mteb.commands.trec import trec_app
from medteb_mteb.commands.validate import validate
from medteb_mteb.curation.step import add_step
from medteb_mteb.curation.steps import STEPS

if TYPE_CHECKING:
    from medteb_mteb.report import ResultTable

__all__ = ["app", "main"]

app = typer.Typer(
    name="medteb",
    help="Evaluate medical text retrieval on MedTEB or your data, and build benchmarks and training data.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(edition_app, name="edition")
app.command("benchmarks")(list_benchmarks)
app.add_typer(build_app, name="build")
app.command("anonymize", no_args_is_help=True)(anonymize)
app.command("dedup", no_args_is_help=True)(dedup)
app.command("diversify", no_args_is_help=True)(diversify)
app.command("consensus", no_args_is_help=True)(consensus)
app.add_typer(review_app, name="review")
app.command("assemble", no_args_is_help=True)(assemble)
app.command("redundancy", no_args_is_help=True)(redundancy)
for _step in STEPS.values():
    add_step(app, _step)
app.command("leakage", no_args_is_help=True)(leakage)
app.command("validate", no_args_is_help=True)(validate)
app.add_typer(trec_app, name="trec")
app.add_typer(report_app, name="report")


@app.callback()
def _root(version: Version = False) -> None:
    del version


@app.command("run", no_args_is_help=True)
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


#: User errors whose modules are costly to import.
_USER_ERRORS = (
    ("medteb_mteb.abstasks.local_copy", "DataUnavailableError"),
    ("medteb_mteb.folders.problems", "FolderError"),
    ("medteb_mteb.curation.files.records", "BuildError"),
    ("medteb_mteb.models.local", "ModelFolderError"),
    ("mar_st.errors", "MarError"),
)


def main() -> None:
    """Entry point: user errors end with a message on stderr and exit code 2."""
    # typer brings its own copy of click in some versions; this is the base of its usage errors.
    usage_error = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")
    from medteb_mteb.editions import EditionError  # lazy: start-up

    def fail(message: str) -> None:
        from mar_st.files import printable  # lazy: numpy

        lines = map(printable, message.splitlines())
        print("medteb: error: " + "\n".join(lines), file=sys.stderr)
        sys.exit(2)

    try:
        sys.exit(app(standalone_mode=False) or 0)
    except (UserError, EditionError) as error:
        fail(str(error))
    except (typer.Abort, KeyboardInterrupt):
        print("medteb: interrupted; finished results are saved", file=sys.stderr)
        sys.exit(130)
    except Exception as error:
        if isinstance(error, usage_error):
            # The choices of a missing option are on lines of their own, with tabs.
            fail(explain(error) or " ".join(getattr(error, "format_message", error.__str__)().split()))
        # A raised error's module is imported already; importing all of them would slow every start.
        for module, name in _USER_ERRORS:
            loaded = sys.modules.get(module)
            if loaded is not None and isinstance(error, getattr(loaded, name)):
                fail(str(error))
        if (message := os_error_message(error)) is not None:
            fail(message)
        raise


if __name__ == "__main__":
    main()
