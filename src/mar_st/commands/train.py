"""`mar recipes`, `mar plan`, `mar train` and `mar ablate`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from mar_st.options import Argument, Settings, Switch, say

if TYPE_CHECKING:
    from mar_st.recipes.schema import Recipe


class RecipesSettings(Settings):
    """Settings of `mar recipes`: none."""


class RecipeSettings(Settings):
    """Settings of commands that take a recipe."""

    recipe: Annotated[str, Argument()] = Field(description="Name of a packaged recipe, or a YAML file.")
    overrides: Annotated[tuple[str, ...], Switch("--set")] = Field(
        default=(), description="Override KEY=VALUE of the recipe, e.g. stages.0.epochs=2; may be repeated."
    )
    tiny: bool = Field(
        default=False, description="Use small random encoders of the same architectures, and packaged data."
    )

    def load(self) -> Recipe:
        """Return the recipe."""
        from mar_st.recipes.load import load_recipe  # lazy: start-up

        recipe = load_recipe(self.recipe, list(self.overrides))
        if self.tiny:
            from mar_st.planning.tiny import shrink  # lazy: torch

            recipe = shrink(recipe)
        return recipe


class PlanSettings(RecipeSettings):
    """Settings of `mar plan`."""

    gpu: str = Field(default="H100", description="Device to plan for: H100, H200, A100-80GB, L40S, ...")
    world: int = Field(default=1, ge=1, description="Number of devices.")
    mfu: float = Field(
        default=0.4, gt=0, le=1, description="Assumed model FLOPs utilisation, a share of the device's peak."
    )


class TrainSettings(RecipeSettings):
    """Settings of `mar train`."""

    out: Path | None = Field(default=None, description="Run folder; default: runs/NAME.")
    save_steps: int = Field(default=200, ge=1, description="Number of steps between checkpoints.")
    until: str | None = Field(default=None, description="Name of the last stage to run; default: all.")
    stages: Path | None = Field(
        default=None, description="Folder of finished stages that several runs share; default: $MAR_STAGES."
    )
    report_to: tuple[str, ...] = Field(
        default=(), description="Tracker to report to, e.g. tensorboard or wandb; may be repeated."
    )
    skip_memory_check: bool = Field(
        default=False, description="Start even if a stage does not fit the GPU's memory."
    )


class AblateSettings(Settings):
    """Settings of `mar ablate`."""

    study: Annotated[str, Argument()] = Field(description="Name of a packaged study, or a YAML file.")
    out: Path | None = Field(default=None, description="Folder of the study; default: runs/NAME.")
    row: tuple[str, ...] = Field(
        default=(), description="Train only this row and the full model; may be repeated."
    )
    seeds: int | None = Field(default=None, ge=1, description="Train only this number of seeds.")
    stages: Path | None = Field(
        default=None, description="Folder of finished stages; default: $MAR_STAGES or OUT/stages."
    )
    save_steps: int = Field(default=200, ge=1, description="Number of steps between checkpoints.")
    tiny: bool = Field(default=False, description="Use small random encoders and packaged data.")


def run_recipes(settings: RecipesSettings) -> dict[str, str]:
    """List the recipes that come with the package."""
    from mar_st.recipes.load import load_recipe, recipe_names  # lazy: start-up

    del settings
    return {name: load_recipe(name).description for name in recipe_names()}


def show_recipes(descriptions: dict[str, str]) -> str:
    """Return a line per recipe."""
    return "\n".join(f"{name:38} {description}" for name, description in descriptions.items())


def run_plan(settings: PlanSettings) -> list[Any]:
    """Estimate the steps, time and memory of a recipe, before any weights are loaded."""
    from mar_st.planning.launch import Launch  # lazy: torch
    from mar_st.planning.plan import plan  # lazy: torch

    launch = Launch(settings.world, Launch.here().deepspeed)
    return list(plan(settings.load(), device=settings.gpu, launch=launch, mfu=settings.mfu))


def show_plan(plans: list[Any]) -> str:
    """Return the plan for a terminal."""
    from mar_st.planning.plan import as_text  # lazy: torch

    return as_text(plans)


def run_train(settings: TrainSettings) -> dict[str, str]:
    """Train a model from a recipe; an interrupted run resumes where it stopped."""
    from mar_st.runs.train import train  # lazy: torch

    recipe = settings.load()
    model = train(
        recipe,
        settings.out or Path("runs") / recipe.name,
        save_steps=settings.save_steps,
        say=say,
        until=settings.until,
        stages=settings.stages,
        report_to=settings.report_to,
        memory_check=not settings.skip_memory_check,
    )
    return {"model": str(model)}


def run_ablate(settings: AblateSettings) -> dict[str, str | None]:
    """Train a grid of recipes and seeds, and compare the models in one table.

    An interrupted study resumes where it stopped.
    """
    from mar_st.runs.train import STAGES_VARIABLE  # lazy: torch
    from mar_st.study import load_study, run_study  # lazy: torch

    study = load_study(settings.study).narrowed(settings.row, settings.seeds)
    options: dict[str, Any] = {}
    if settings.tiny:
        from mar_st.evaluation.tasks import Task  # lazy: torch
        from mar_st.planning.tiny import shrink  # lazy: torch

        tasks = (Task(name="retrieval", path="MedTEBRetrieval"), Task(name="sts", path="MedTEBSTS"))
        study, options = study.model_copy(update={"tasks": tasks}), {"prepare": shrink}
    table = run_study(
        study,
        settings.out or Path("runs") / study.name,
        stages=settings.stages or os.environ.get(STAGES_VARIABLE),
        save_steps=settings.save_steps,
        say=say,
        **options,
    )
    return {"table": None if table is None else str(table.with_suffix(".md"))}


def show_result(result: dict[str, str | None]) -> str:
    """Return what a command wrote."""
    return "\n".join(f"{what}: {path or 'other processes still work on it'}" for what, path in result.items())
