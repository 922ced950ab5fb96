"""`mar cross-encoder`: train a cross-encoder that grades."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from mar_st.commands.options import AsJson, Epochs, Seed, StepBatchSize


def cross_encoder(
    data: Annotated[
        list[Path],
        typer.Argument(help="JSONL with query, document and label (0 for unrelated)."),
    ],
    base: Annotated[str, typer.Option(help="Encoder or cross-encoder to start from: folder or Hub name.")],
    out: Annotated[Path, typer.Option(help="Folder to write to.")],
    layers: Annotated[
        int | None, typer.Option(help="Number of layers of the base to keep; default: all.", min=1)
    ] = None,
    max_length: Annotated[
        int, typer.Option(help="Maximum number of tokens of query and document together.", min=8)
    ] = 256,
    epochs: Epochs = 1.0,
    batch_size: StepBatchSize = 32,
    learning_rate: Annotated[float, typer.Option(help="Peak learning rate of AdamW.")] = 5e-5,
    lowest: Annotated[
        int | None,
        typer.Option(help="Number of training pairs of the lowest label per query; default: all.", min=1),
    ] = None,
    calibration: Annotated[
        float, typer.Option(help="Share of the queries used to fit thresholds, not weights.")
    ] = 0.1,
    seed: Seed = 42,
    as_json: AsJson = False,
) -> None:
    """Train a cross-encoder to grade pairs.

    Thresholds between the grades are fitted to held-out rows. The model reranks (mar search --rerank),
    teaches (teacher: cross-encoder:FOLDER) and judges (medteb judge). Interrupted training
    resumes from the last checkpoint.
    """
    from mar_st.graded import GraderSettings, read_graded, train_grader  # lazy: numpy

    report = train_grader(
        read_graded(data),
        base,
        out,
        GraderSettings(
            layers=layers,
            max_length=max_length,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            lowest=lowest,
            calibration=calibration,
            seed=seed,
        ),
    )
    if as_json:
        typer.echo(json.dumps(report.to_json(), indent=2))
        return
    bounds = ", ".join(f"{bound:.3f}" for bound in report.thresholds.bounds)
    typer.echo(
        f"{report.folder}: trained on {sum(report.trained.values()):,} pairs, thresholds {bounds} from "
        f"{sum(report.calibrated.values()):,} others; weighted kappa {report.kappa:.3f} with thresholds "
        "of the other folds"
    )
