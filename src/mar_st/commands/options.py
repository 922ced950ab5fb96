"""Options that several commands share, each declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Seed = Annotated[int, typer.Option(help="Random seed.")]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace what an earlier call wrote to the folder OUT.")
]
Threads = Annotated[
    int | None, typer.Option(help="Number of threads of the encoder; default: all processors.", min=1)
]

NewFolder = Annotated[Path, typer.Argument(help="Folder to write.")]

# Training.
Recipe = Annotated[str, typer.Argument(help="Name of a packaged recipe, or a YAML file.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", help="Override KEY=VALUE of the recipe, e.g. stages.0.epochs=2; may be repeated."),
]
SaveSteps = Annotated[int, typer.Option(help="Number of steps between checkpoints.", min=1)]
Epochs = Annotated[float, typer.Option(help="Number of passes over the training data.", min=0.01)]
StepBatchSize = Annotated[int, typer.Option("--batch-size", help="Number of examples per step.", min=1)]

# Encoding.
EncodeBatchSize = Annotated[
    int, typer.Option("--batch-size", help="Number of texts per forward pass.", min=1)
]
Dtype = Annotated[
    Literal["float32", "bfloat16"],
    typer.Option(help="Dtype that models compute in; bfloat16 uses autocast."),
]
Store = Annotated[
    Path | None,
    typer.Option(help="Folder that keeps vectors; default: $MAR_STORE or OUT/../teacher-store."),
]

# Indexes and searching.
# Strings, since a Path would turn the // of milvus:http://HOST into a single one.
IndexFolder = Annotated[str, typer.Argument(metavar="INDEX", help="Folder of the index.")]
IndexAddress = Annotated[
    str, typer.Argument(metavar="INDEX", help="Folder of the index, or its milvus: address.")
]
Encoder = Annotated[
    str | None,
    typer.Option(help="Query encoder: exported folder, model, or mar-mini; default: the index's model."),
]
QueryEncoder = Annotated[
    str | None,
    typer.Option(
        "--query-encoder", help="Name of the query encoder in a model with several, e.g. query-lookup."
    ),
]
QueryEncoders = Annotated[
    list[str] | None,
    typer.Option(
        "--query-encoder", help="Name of a query encoder in the model, e.g. query-lookup; may be repeated."
    ),
]
