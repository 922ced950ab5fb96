"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Hide progress bars.")]
OutFolder = Annotated[Path, typer.Argument(help="Folder to write to.")]
QueriesSource = Annotated[str, typer.Argument(help="Queries: a file, a folder, or hub:ORG/NAME.")]
DocumentsSource = Annotated[str, typer.Argument(help="Documents: a file, a folder, or hub:ORG/NAME.")]
TextsSource = Annotated[str, typer.Argument(metavar="IN", help="Texts: a file, a folder, or hub:ORG/NAME.")]
RetryFailed = Annotated[
    bool, typer.Option("--retry-failed", help="Send requests that failed in earlier runs again.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Estimate the requests and their cost, and send nothing.")
]
AlreadyAnonymous = Annotated[
    bool, typer.Option("--already-anonymous", help="Send texts that were not anonymised.")
]
LlmFile = Annotated[Path, typer.Option(help="YAML file of the LLM.")]
AnswersJournal = Annotated[
    Path | None,
    typer.Option(help="Journal of paid answers; default: $MEDTEB_ANSWERS or answers.sqlite beside OUT."),
]
VectorStore = Annotated[
    Path | None, typer.Option(help="Folder that keeps vectors; default: $MAR_STORE or OUT/../teacher-store.")
]
BatchSize = Annotated[int, typer.Option(help="Number of texts encoded at once.", min=1)]
SampleSeed = Annotated[int, typer.Option(help="Seed of the random sample.")]
Seed = Annotated[int, typer.Option(help="Seed of all random choices.")]
TaskOrEdition = Annotated[str, typer.Argument(help="Task name or edition folder.")]
TaskOrFolder = Annotated[str, typer.Argument(help="Name of a task, or a retrieval or reranking folder.")]
RankedFolder = Annotated[Path, typer.Argument(help="Retrieval or reranking folder in the Hub layout.")]
DataFolder = Annotated[
    Path, typer.Argument(help="Folder to write to; set MEDTEB_DATA=OUT to evaluate on it.")
]
EditionName = Annotated[str, typer.Option(help="Name of the edition.")]
EditionVersion = Annotated[str, typer.Option(help="Version of the edition.")]
License = Annotated[str, typer.Option("--license", help="Licence of the data, e.g. cc-by-4.0.")]
TestSize = Annotated[float, typer.Option(help="Number of test queries, or their share if below 1.")]
AgainstTraining = Annotated[
    list[str] | None,
    typer.Option("--against", help="Training set whose queries must not be in the test; may be repeated."),
]
AgainstTests = Annotated[
    list[str] | None,
    typer.Option(
        "--against", help="Edition or queries of a test to keep out of the training data; may be repeated."
    ),
]
KeepAway = Annotated[
    list[str] | None,
    typer.Option(
        "--keep-away",
        help="Edition or queries of another test to keep out of the training data; may be repeated.",
    ),
]
QuerySimilarity = Annotated[
    float, typer.Option(help="Similarity from which two queries count as near-duplicates.")
]
TestSimilarity = Annotated[
    float, typer.Option(help="Similarity from which a query counts as a near-duplicate of a test query.")
]
