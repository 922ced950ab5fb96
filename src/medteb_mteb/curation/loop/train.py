"""Step `train`: the served model is trained further, by a recipe."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from mar_st.errors import MarError
from mar_st.options import FromFile, say, validated
from medteb_mteb.curation.files.layout import write_rows
from medteb_mteb.curation.files.read import read_texts
from medteb_mteb.curation.loop.release import point
from medteb_mteb.curation.loop.start import MonthSettings
from medteb_mteb.curation.step import Counts, Input, Model, Runtime, Step
from medteb_mteb.curation.training.rows import training_queries

if TYPE_CHECKING:
    from mar_st.recipes.schema import Recipe


class TrainSettings(MonthSettings):
    """Options of the step."""

    model: Annotated[str, Model()] = Field(description="Model to start from.")
    data: Annotated[tuple[Path, ...], Input("triples", "pairs")] = Field(
        min_length=1, description="Files of training data; empty ones are left out."
    )
    texts: Annotated[Path | None, Input("texts")] = Field(
        None, description="Texts to align the query encoder on, without labels; not those of a test."
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
    from mar_st.runs.train import train as run_recipe  # lazy: torch
    from mar_st.teachers.store import store_root  # lazy: torch

    run, sources = settings.out / settings.month, settings.out / "sources"
    rows = {str(path): len(training_queries(path)) for path in _filled(settings)}
    recipe = _recipe(settings, sources)
    run_recipe(recipe, run, save_steps=settings.save_steps, say=say, store=store_root(settings.out))
    point(settings.out / "model", Path(settings.month, "model"))
    for folder in (sources, *run.glob("[0-9][0-9]-*")):  # the finished model is enough
        shutil.rmtree(folder)
    stages = [stage.name for stage in recipe.stages]
    return Counts(sum(rows.values()), details={"queries": rows, "stages": stages})


def _filled(settings: TrainSettings) -> list[Path]:
    """Return the training data without empty files."""
    return [path for path in settings.data if path.is_dir() or path.stat().st_size]


def _recipe(settings: TrainSettings, sources: Path) -> Recipe:
    """Return the recipe with the backbones and prompts of the model, and the data of the step."""
    from mar_st.recipes.schema import Recipe  # lazy: pydantic
    from mar_st.runs.models import write_sides  # lazy: torch

    if "data" in settings.recipe:
        raise MarError("The recipe has 'data'; those of the step take their place. Leave them out.")
    sides, prompts = write_sides(settings.model, sources)
    content = {**settings.recipe, "prompts": {**prompts, **settings.recipe.get("prompts", {})}}
    for side, source in sides.items():
        if isinstance(content.get(side), dict):
            content[side] = {**content[side], **source}
    common = {"prompt": "query" if "query" in content["prompts"] else "", "negatives": 0}
    content["data"] = [
        {"name": f"triples-{number}", "path": str(path), **common}
        for number, path in enumerate(_filled(settings), 1)
    ]
    if settings.texts is not None:
        place = sources / "texts.jsonl"
        write_rows(place, ({"text": text.full} for text in read_texts(settings.texts)))
        entry = {"name": "texts", "path": str(place), "form": "texts", "role": "query"}
        content["data"].append({**entry, "prompt": common["prompt"]})
    return validated(Recipe, content, "recipe")


TRAIN = Step("train", TrainSettings, train, "model", result_file="model", alone=False)
