"""`mar`: train and use asymmetric retrievers."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from mar_st.commands.ablate import ablate
from mar_st.commands.align import align
from mar_st.commands.cross_encoder import cross_encoder
from mar_st.commands.encode import EncodeCommand, encode
from mar_st.commands.encode import shown as encoded
from mar_st.commands.export import export
from mar_st.commands.index import index_build, index_info, index_update
from mar_st.commands.index_match import index_match
from mar_st.commands.index_tune import index_tune
from mar_st.commands.mine import mine
from mar_st.commands.options import AsJson, Overrides, Recipe, SaveSteps
from mar_st.commands.search import search
from mar_st.commands.trim import trim
from mar_st.commands.version import Version
from mar_st.errors import MarError
from mar_st.options import application, command, run
from mar_st.serve import ServeSettings
from mar_st.serve import run as serve

app = application("mar", "Train, encode, index and serve asymmetric models for medical text retrieval.")
indexes = application("index", "Build, change, tune and inspect indexes.")
indexes.command("build")(index_build)
indexes.command("update")(index_update)
indexes.command("tune")(index_tune)
indexes.command("match")(index_match)
indexes.command("info")(index_info)


@app.callback()
def _root(version: Version = False) -> None:
    del version


@app.command()
def recipes(as_json: AsJson = False) -> None:
    """List the recipes that come with the package."""
    from mar_st.recipes.load import load_recipe, recipe_names  # lazy: numpy

    descriptions = {name: load_recipe(name).description for name in recipe_names()}
    if as_json:
        print(json.dumps(descriptions, ensure_ascii=False, indent=2))
    else:
        for name, description in descriptions.items():
            print(f"{name:38} {description}")


@app.command()
def train(
    recipe: Recipe,
    out: Annotated[Path | None, typer.Option(help="Run folder; default: runs/NAME.")] = None,
    overrides: Overrides = None,
    save_steps: SaveSteps = 200,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Number of processes per device that tokenise ahead; default: the recipe's.", min=0
        ),
    ] = None,
    stage: Annotated[
        str | None, typer.Option(help="Name of the last stage to run; default: all stages.")
    ] = None,
    stages: Annotated[
        Path | None,
        typer.Option(help="Folder of finished stages that several runs share; default: $MAR_STAGES."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume a run; fail if there is none.")] = False,
    fit: Annotated[
        bool,
        typer.Option(
            "--fit", help="Change memory settings so that every stage fits the GPU; default: refuse to start."
        ),
    ] = False,
    skip_memory_check: Annotated[
        bool,
        typer.Option("--skip-memory-check", help="Start even if a stage does not fit the GPU's memory."),
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Delete the run folder first instead of resuming.")
    ] = False,
    report_to: Annotated[
        list[str] | None, typer.Option(help="Tracker to report to, e.g. wandb or mlflow; may be repeated.")
    ] = None,
    push_to_hub: Annotated[
        str | None,
        typer.Option(help="Upload the finished model to the Hub as the private repository ORG/NAME."),
    ] = None,
    tiny: Annotated[
        bool,
        typer.Option(
            "--tiny", help="Use small random encoders of the same architectures, and packaged data."
        ),
    ] = False,
    dtype: Annotated[
        str | None,
        typer.Option(
            help="Dtype of the --tiny encoders: float32, float16 or bfloat16; default: as the "
            "published weights."
        ),
    ] = None,
    rehearse: Annotated[
        bool,
        typer.Option(
            "--rehearse", help="Try every stage for 20 steps: save, kill, resume, evaluate and load."
        ),
    ] = False,
) -> None:
    """Train a model from a recipe.

    An interrupted run resumes where it stopped.
    """
    from mar_st.recipes.load import load_recipe  # lazy: numpy

    if dtype is not None and not tiny:
        raise typer.BadParameter("--dtype is for --tiny; a recipe sets it by backbone: --set query.dtype=...")
    if workers is not None:
        overrides = [*(overrides or ()), f"workers={workers}"]
    loaded = load_recipe(recipe, overrides)
    if rehearse:
        from mar_st.commands.rehearse import run as rehearsal  # lazy: torch

        rehearsal(loaded, out, tiny=tiny, dtype=dtype, say=lambda line: print(line, flush=True))
        return
    if tiny:
        from mar_st.rehearsal.tiny import shrink  # lazy: transformers

        loaded = shrink(loaded, dtype)
    folder = out or Path("runs") / loaded.name
    if fresh and resume:
        raise typer.BadParameter("--fresh deletes the run that --resume needs; give one of them.")
    if fit and skip_memory_check:
        raise typer.BadParameter("--fit needs the memory check; give --fit or --skip-memory-check, not both.")
    if fresh and folder.exists() and os.environ.get("RANK", "0") == "0":
        _delete_run(folder)
    if push_to_hub is not None:
        from mar_st.model.hub import check_repository  # lazy: start-up

        check_repository(push_to_hub)  # before training, not hours later
    from mar_st.runs.train import train as train_recipe  # lazy: torch

    trained = train_recipe(
        loaded,
        folder,
        save_steps=save_steps,
        say=lambda line: print(line, flush=True),
        until=stage,
        resume=resume,
        stages=stages,
        report_to=report_to or (),
        fit=fit or (False if skip_memory_check else None),
    )
    if push_to_hub is not None and os.environ.get("RANK", "0") == "0":
        from mar_st.model.hub import push as upload  # lazy: start-up

        print(f"pushed: {upload(trained, push_to_hub)}")


@app.command()
def push(
    model: Annotated[Path, typer.Argument(help="Run folder, or model folder.")],
    repository: Annotated[str, typer.Argument(help="Repository on the Hub, as ORG/NAME.")],
    public: Annotated[
        bool, typer.Option("--public", help="Make the repository public; default: private.")
    ] = False,
    revision: Annotated[
        str | None, typer.Option(help="Branch to upload to; created if it does not exist.")
    ] = None,
) -> None:
    """Upload a finished model to the Hugging Face Hub."""
    from mar_st.model.hub import push as upload  # lazy: start-up

    print(upload(model, repository, public=public, revision=revision))


@app.command()
def plan(
    recipe: Recipe,
    gpu: Annotated[
        str | None,
        typer.Option(help="Device to plan for: H100 (default), H200, A100-40GB, A100-80GB, ..., cpu."),
    ] = None,
    world: Annotated[int, typer.Option(help="Number of devices.", min=1)] = 1,
    mfu: Annotated[
        float | None,
        typer.Option(help="Assumed model FLOPs utilisation, a share of the device's peak; default: 0.4."),
    ] = None,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Measure the speed of this machine for a few seconds.")
    ] = False,
    trial: Annotated[
        bool,
        typer.Option(
            "--trial",
            help="Train every stage for some steps on this machine; needs the data and takes minutes.",
        ),
    ] = False,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Estimate the time, memory and disk space of a recipe.

    The estimate is made before any weights are loaded.
    """
    from mar_st.commands import plan as commands  # lazy: torch
    from mar_st.recipes.load import load_recipe  # lazy: numpy

    estimate = commands.make(
        load_recipe(recipe, overrides), gpu=gpu, world=world, mfu=mfu, calibrate=calibrate, trial=trial,
        note=lambda line: print(line, file=sys.stderr, flush=True),
    )  # fmt: skip
    print(json.dumps(estimate.to_json(), indent=2) if as_json else commands.as_text(estimate))


app.command()(ablate)
app.command()(align)
app.command("cross-encoder")(cross_encoder)
app.command()(mine)
command(app, "encode", EncodeCommand, encode, show=encoded)
app.add_typer(indexes)
app.command()(search)
app.command()(trim)
app.command()(export)
command(app, "serve", ServeSettings, serve)


def _delete_run(folder: Path) -> None:
    from mar_st.files.locks import LOCK, alone, clear  # lazy: numpy

    if not folder.is_dir() or (
        any(path.name != LOCK for path in folder.iterdir()) and not (folder / "recipe.json").is_file()
    ):
        raise MarError(f"{folder} is not a run folder (it has no recipe.json); --fresh would delete it.")
    with alone(folder, MarError):
        clear(folder)


@app.command()
def info(
    model: Annotated[str, typer.Argument(help="Folder of a saved MAR, or a packaged name such as mar-mini.")],
) -> None:
    """Show the parts of a saved MAR without loading weights."""
    from mar_st.model.describe import describe  # lazy: numpy

    print(json.dumps(describe(model), ensure_ascii=False, indent=2))


def main() -> None:
    """Entry point of `mar`."""
    run(app, "mar")


if __name__ == "__main__":
    main()
