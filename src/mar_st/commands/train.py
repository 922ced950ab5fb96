"""`mar recipes`, `mar train` and `mar ablate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from mar_st.options import Argument, Settings, Switch, as_yaml, say


class RecipesSettings(Settings):
    """Settings of `mar recipes`: none."""


class TrainSettings(Settings):
    """Settings of `mar train`."""

    recipe: Annotated[str, Argument()] = Field(description="Name of a packaged recipe, or a YAML file.")
    overrides: Annotated[tuple[str, ...], Switch("--set")] = Field(
        default=(),
        description="Override KEY=VALUE of the recipe, e.g. stages.align.epochs=2; may be repeated.",
    )
    tiny: bool = Field(
        default=False, description="Use small random encoders of the same architectures, and packaged data."
    )
    out: Path | None = Field(default=None, description="Run folder; default: runs/NAME, or runs/NAME-tiny.")
    save_steps: int = Field(default=200, ge=1, description="Number of steps between checkpoints.")
    report_to: tuple[str, ...] = Field(
        default=(), description="Tracker to report to, e.g. tensorboard or wandb; may be repeated."
    )
    dry_run: bool = Field(
        default=False, description="Print the steps, time and memory of each stage, and do nothing."
    )
    gpus: str = Field(default="1xH100", description="GPUs that --dry-run plans for, e.g. 8xA100-80GB.")


class AblateSettings(Settings):
    """Settings of `mar ablate`."""

    study: Annotated[str, Argument()] = Field(description="Name of a packaged study, or a YAML file.")
    out: Path | None = Field(
        default=None, description="Folder of the study; default: runs/NAME, or runs/NAME-tiny."
    )
    seeds: int | None = Field(default=None, ge=1, description="Train only this number of seeds.")
    tiny: bool = Field(default=False, description="Use small random encoders and packaged data.")


def run_recipes(settings: RecipesSettings) -> dict[str, str]:
    """List the recipes that come with the package."""
    from mar_st.recipes.load import load_recipe, recipe_names  # lazy: start-up

    del settings
    return {name: load_recipe(name).description for name in recipe_names()}


def run_train(settings: TrainSettings) -> dict[str, Any]:
    """Train a model from a recipe; an interrupted run resumes where it stopped."""
    from mar_st.recipes.load import load_recipe  # lazy: start-up

    recipe = load_recipe(settings.recipe, list(settings.overrides))
    if settings.tiny:
        from mar_st.planning.tiny import shrink  # lazy: torch

        recipe = shrink(recipe)
    if settings.dry_run:
        from mar_st.planning.plan import plan  # lazy: torch

        return {"stages": plan(recipe, settings.gpus)}
    from mar_st.runs.train import train  # lazy: torch

    model = train(
        recipe,
        settings.out or _default_out(recipe.name, tiny=settings.tiny),
        save_steps=settings.save_steps,
        say=say,
        report_to=settings.report_to,
    )
    return {"model": str(model)}


def _default_out(name: str, *, tiny: bool) -> Path:
    return Path("runs") / (f"{name}-tiny" if tiny else name)  # a trial must not replace the real run


def show_trained(result: dict[str, Any]) -> str:
    """Return what was written, or the plan of a dry run with its units."""
    stages = [
        {
            **vars(stage),
            "flops": {mode: f"{value / 1e12:.4g} TFLOP" for mode, value in stage.flops.items()},
            "memory": {name: f"{value / 2**30:,.2f} GiB" for name, value in stage.memory.items() if value},
        }
        for stage in result.get("stages", ())
    ]
    return as_yaml(stages or result)


def run_ablate(settings: AblateSettings) -> dict[str, str | None]:
    """Train a grid of recipes and seeds, and compare the models in one table.

    An interrupted study resumes where it stopped.
    """
    from mar_st.study.grid import load_study, run_study  # lazy: torch

    study = load_study(settings.study)
    if settings.seeds is not None:
        study = study.model_copy(update={"seeds": study.seeds[: settings.seeds]})
    options: dict[str, Any] = {}
    if settings.tiny:
        from mar_st.evaluation.tasks import Task  # lazy: torch
        from mar_st.planning.tiny import shrink  # lazy: torch

        tasks = (Task(name="retrieval", path="MedTEBRetrieval"), Task(name="sts", path="MedTEBSTS"))
        study, options = study.model_copy(update={"tasks": tasks}), {"prepare": shrink}
    table = run_study(
        study,
        settings.out or _default_out(study.name, tiny=settings.tiny),
        say=say,
        **options,
    )
    return {"table": None if table is None else str(table.with_suffix(".md"))}
