"""Step `train`: the served model is trained further, by a recipe."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from mar_st.errors import MarError
from mar_st.options import FromFile, say, validated
from medteb_mteb.curation.loop.releases import point
from medteb_mteb.curation.loop.start import MonthSettings
from medteb_mteb.curation.step import Counts, Estimate, Input, Model, Runtime, Step

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mar_st.recipes.schema import Recipe


class TrainSettings(MonthSettings):
    """Options of the step."""

    model: Annotated[str, Model()] = Field(description="Model to start from.")
    data: Annotated[tuple[Path, ...], Input("triples", "pairs")] = Field(
        min_length=1, description="Files of training data; empty ones are left out."
    )
    recipe: Annotated[dict[str, Any], FromFile()] = Field(
        description="Recipe without 'data' and sources: its backbones are those of the model."
    )
    save_steps: Annotated[int, Runtime()] = Field(200, ge=1, description="Steps between checkpoints.")


def train(settings: TrainSettings) -> Counts:
    """Train a model further.

    Writes the run of the recipe to a folder named by the month, and `model`, a link to its model. A killed
    run resumes from its last checkpoint.
    """
    from mar_st.data.training import read_source  # lazy: transformers
    from mar_st.runs.train import train as run_recipe  # lazy: torch
    from mar_st.teachers.store import store_root  # lazy: torch

    run = settings.out / settings.month
    recipe = _recipe(settings, settings.out / "sources")
    rows = sum(len(read_source(entry, recipe.seed).triples) for entry in recipe.data)
    run_recipe(recipe, run, save_steps=settings.save_steps, say=say, store=store_root(settings.out))
    point(settings.out / "model", Path(settings.month, "model"))
    for stage in recipe.stages:  # the finished model is enough
        for folder in run.glob(f"[0-9][0-9]-{stage.name}"):
            shutil.rmtree(folder)
    shutil.rmtree(settings.out / "sources")
    return Counts(rows, details={"rows": rows, "stages": [stage.name for stage in recipe.stages]})


def _recipe(settings: TrainSettings, sources: Path) -> Recipe:
    """Return the recipe with the backbones and prompts of the model, and the data of the step."""
    from mar_st.recipes.schema import Recipe  # lazy: pydantic
    from mar_st.runs.models import write_sides  # lazy: torch

    content = {**settings.recipe, "data": []}
    if given := settings.recipe.get("data"):
        raise MarError(f"The recipe has 'data' ({len(given)} entries); those of the step take their place.")
    sides, prompts = write_sides(settings.model, sources)
    for side, source in sides.items():
        if isinstance(content.get(side), dict):
            content[side] = {**content[side], **source}
    content["prompts"] = {**prompts, **content.get("prompts", {})}
    prompt = "query" if "query" in content["prompts"] else ""
    for number, path in enumerate(settings.data, 1):
        if path.stat().st_size:
            entry = {"name": f"data-{number}", "path": str(path), "negatives": 0, "prompt": prompt}
            content["data"].append(entry)
    return validated(Recipe, content, "recipe")


def _estimate(settings: TrainSettings, sizes: Mapping[str, Estimate]) -> Estimate:
    del settings
    return Estimate(sizes["data"].rows)


TRAIN = Step("train", TrainSettings, train, "model", _estimate, result_file="model", alone=False)
