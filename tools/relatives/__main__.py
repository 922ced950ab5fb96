"""`python -m tools.relatives`: fetch sources, build the data of a task, build MedTE's training pairs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from mar_st.errors import MarError
from mar_st.options import read_yaml, validated
from medteb_mteb.curation.llm.journal import journal_path
from medteb_mteb.curation.llm.settings import LLM
from tools.relatives import pairs as medte
from tools.relatives import written
from tools.relatives.english import BUILDERS, NEED_LLM
from tools.relatives.fetch import fetch as fetch_source
from tools.relatives.raw import Raw, write_edition, write_snapshot
from tools.relatives.sets import SETS
from tools.relatives.tables import OFFICIAL

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.command()
def fetch(
    source: Annotated[str, typer.Argument(help=f"One of {', '.join(OFFICIAL)}.")],
    folder: Annotated[Path, typer.Argument(help="Folder of the responses; the same command resumes.")],
    contact: Annotated[str, typer.Option(help="Your e-mail or web page; default $MEDTEB_CONTACT.")] = "",
    task: Annotated[list[str] | None, typer.Option(help="Task to fetch for; default all.")] = None,
    most: Annotated[int | None, typer.Option(min=1, help="Most pages, articles, studies.")] = None,
) -> None:
    """Fetch the texts of an open API into a folder."""
    contact = contact or os.environ.get("MEDTEB_CONTACT", "")
    if source not in OFFICIAL or not contact:
        raise MarError(f"Give one of {', '.join(OFFICIAL)}, and --contact: NCBI and Wikimedia require it.")
    print(f"{fetch_source(source, folder, contact, tasks=tuple(task or ()), most=most)} responses")


@app.command()
def build(
    task: Annotated[str, typer.Argument(help="Name of the task, such as MedQuADLiveQARetrieval.")],
    raw_folder: Annotated[Path, typer.Argument(help="Folder of the raw files; archives stay packed.")],
    out: Annotated[Path, typer.Argument(help="Root of editions, as in MEDTEB_DATA.")],
    queries: Annotated[Literal["original", "paraphrase", "summary"], typer.Option()] = "original",
    grades: Annotated[Literal["lower", "higher"], typer.Option(help="Which of two grades.")] = "lower",
    negatives: Annotated[Literal["minilm", "bm25"], typer.Option(help="Finds hard negatives.")] = "minilm",
    llm: Annotated[Path | None, typer.Option(help="YAML file of the LLM that writes texts.")] = None,
    most: Annotated[int | None, typer.Option(min=2, help="Most texts to show the LLM.")] = None,
) -> None:
    """Build the data of a task from raw files: an edition, or a file of the snapshot of English MedTEB."""
    raw = Raw(raw_folder)
    if task in SETS:
        options = {"queries": queries, "grades": grades} if task == "MedQuADLiveQARetrieval" else {}
        edition = write_edition(task, SETS[task](raw, **options), out, raw)  # type: ignore[operator]
        print(f"{edition.path}  {edition.digest[:12]}  {edition.counts}")
        return
    if llm is not None and task in written.TASKS:
        rows, record = written.write(
            task, raw, validated(LLM, read_yaml(Path(llm)), str(llm)), journal_path(out), negatives, most
        )
        differs = "texts by the LLM that `written` names, with prompts of our own, in the place of GPT-4o's"
        print(write_snapshot(task, rows, out, raw, differs, written=record))
    elif task in NEED_LLM:
        raise MarError(f"An LLM writes the texts of {task}: give --llm FILE, the YAML file of an LLM.")
    elif task in BUILDERS:
        rows = BUILDERS[task].make(task, raw, negatives)
        print(write_snapshot(task, rows, out, raw, BUILDERS[task].differs, negatives=negatives))
    else:
        raise MarError(f"No task {task!r}; known are {', '.join([*SETS, *BUILDERS, *NEED_LLM])}.")


@app.command()
def pairs(
    source: Annotated[Path, typer.Argument(help="Folder with a folder of raw files per source.")],
    out: Annotated[Path, typer.Argument(help="Folder of the pairs.")],
    form: Annotated[Literal["paper", "code"], typer.Option(help="As in the paper, or its code.")] = "paper",
    against: Annotated[Path | None, typer.Option(help="Root of editions whose texts are left out.")] = None,
) -> None:
    """Build MedTE's training pairs."""
    print(json.dumps(medte.build_pairs(source, out, form, against), indent=2))


@app.command()
def passages(
    source: Annotated[Path, typer.Argument(help="Rows with text and maybe title.")],
    out: Annotated[Path, typer.Argument(help="JSON lines to write.")],
) -> None:
    """Build BMRetriever's unlabelled pairs: title and text, or two disjoint passages of a text."""
    print(json.dumps(medte.two_passages(source, out)))


if __name__ == "__main__":
    try:
        app()
    except MarError as error:
        raise SystemExit(f"error: {error}") from None
