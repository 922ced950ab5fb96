"""`mar train --rehearse`: try every stage of a recipe before it is run."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from mar_st.rehearsal.rehearse import rehearse
from mar_st.rehearsal.tiny import shrink, write_evaluation

if TYPE_CHECKING:
    from collections.abc import Callable

    from mar_st.recipes.schema import Recipe


def run(
    recipe: Recipe, out: Path | None, *, tiny: bool, say: Callable[[str], None], dtype: str | None = None
) -> None:
    """Rehearse a recipe and print a line per stage.

    Args:
        recipe: The recipe as loaded.
        out: Folder to write to and keep; default: a folder below `runs/`, deleted if all stages pass.
        tiny: Use small random encoders and packaged data.
        say: Receives the lines.
        dtype: Dtype of the small encoders, see `mar_st.rehearsal.tiny.shrink`.

    Raises:
        MarError: A stage failed; the message gives its name and the reason. The folder is kept.
    """
    folder = out or Path("runs") / f"{recipe.name}-rehearsal"
    with tempfile.TemporaryDirectory() as place:
        if tiny:
            recipe = shrink(recipe, dtype)
            if recipe.evaluation is not None:
                path = str(write_evaluation(Path(place)))
                evaluation = recipe.evaluation.model_copy(update={"path": path})
                recipe = recipe.model_copy(update={"evaluation": evaluation})
        say(f"rehearsing {recipe.name}: {len(recipe.stages)} stages in {folder}")
        rehearse(recipe, folder, say=say)
    if out is None:
        shutil.rmtree(folder)
    say(f"rehearsed {recipe.name}: all stages trained, resumed, and left a model that loads")
