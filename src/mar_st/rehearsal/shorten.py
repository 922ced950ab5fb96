"""Recipes cut to a few steps."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mar_st.recipes.schema import Recipe

__all__ = ["Shortened", "shorten"]


@dataclass(frozen=True)
class Shortened:
    """Limits of a shortened recipe.

    Attributes:
        steps: Steps of each stage.
        rows: Minimum rows of each data entry.
        batches: Minimum rows that each data entry gives a stage, in batches of its largest stage.
        every: Steps between two evaluations.
    """

    steps: int
    rows: int
    batches: int
    every: int


def shorten(recipe: Recipe, to: Shortened) -> Recipe:
    """Return the recipe with few steps per stage on a part of its data.

    Args:
        recipe: The recipe.
        to: The limits.
    """
    content = recipe.model_dump()
    for stage in content["stages"]:
        stage["max_steps"] = to.steps
    for entry in content["data"]:
        using = [stage for stage in recipe.stages if entry["name"] in {e.name for e in recipe.data_of(stage)}]
        needed = max([to.rows, *(to.batches * stage.batch_size for stage in using)])
        # A weight below 1 keeps only this share of the rows.
        wanted = math.ceil(needed / min(entry["weight"], 1))
        entry["limit"] = min(entry["limit"] or wanted, wanted)
    if recipe.evaluation is not None:
        content["evaluation"]["every"] = to.every
    return Recipe.model_validate(content)
