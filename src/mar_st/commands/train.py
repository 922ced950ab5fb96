"""`mar recipes`, `mar train` and `mar ablate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from mar_st.options import Argument, Settings, Switch, say

if TYPE_CHECKING:
    from mar_st.planning.plan import StagePlan


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
    out: Path | None = Field(default=None, description="Run folder; default: runs/NAME.")
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
    out: Path | None = Field(default=None, description="Folder of the study; default: runs/NAME.")
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
        settings.out or Path("runs") / recipe.name,
        save_steps=settings.save_steps,
        say=say,
        report_to=settings.report_to,
    )
    return {"model": str(model)}


def show_trained(result: dict[str, Any]) -> str:
    """Return what was written, or the plan of a dry run."""
    return as_text(result["stages"]) if "stages" in result else f"model: {result['model']}"


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
        settings.out or Path("runs") / study.name,
        say=say,
        **options,
    )
    return {"table": None if table is None else str(table.with_suffix(".md"))}


def as_text(plans: list[StagePlan]) -> str:
    """Return a plan for a terminal: a block per stage, and a total."""
    lines = []
    for stage in plans:
        sides = ", ".join(
            f"{side} {part['mode']} ({part['trained'] / 1e6:,.1f}M of {part['all'] / 1e6:,.1f}M trained, "
            f"{part['dtype']})"
            for side, part in stage.parameters.items()
        )
        parts = ", ".join(f"{name} {_bytes(value)}" for name, value in stage.memory.items() if value)
        steps = "unknown" if stage.steps is None else f"{stage.steps:,}"
        lines += [
            f"{stage.name} ({stage.kind})",
            f"  parameters  {sides}",
            f"  steps       {steps} of {stage.tokens_per_step:,.0f} tokens",
            f"  operations  {sum(stage.flops.values()) / 1e12:.4g} TFLOP a step and device",
            f"  memory      {parts}{'' if stage.fits else '  DOES NOT FIT'}",
            f"  time        {_duration(stage.hours)}",
            *(f"  note        {note}" for note in stage.notes),
            "",
        ]
    hours = [stage.hours for stage in plans]
    whole = None if None in hours else sum(value or 0.0 for value in hours)
    return "\n".join([*lines, f"all stages: {_duration(whole)}"])


def _bytes(value: float) -> str:
    return f"{value / 2**30:,.2f} GiB" if value >= 2**28 else f"{value / 2**20:,.1f} MiB"


def _duration(hours: float | None) -> str:
    if hours is None:
        return "unknown"
    return f"{hours:,.1f} h" if hours >= 1 else f"{hours * 60:.1f} min"
