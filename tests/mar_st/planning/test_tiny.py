"""`--tiny`: recipes on small random encoders."""

from __future__ import annotations

import pytest

from mar_st.errors import MarError
from mar_st.planning.backbones import recipe_shapes
from mar_st.planning.tiny import shrink
from mar_st.recipes.load import load_recipe, recipe_names


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_has_a_small_counterpart_of_the_same_architecture(name):
    recipe = load_recipe(name)
    small = shrink(recipe)
    assert [(s.name, s.stage, s.learning_rate) for s in small.stages] == [
        (s.name, s.stage, s.learning_rate) for s in recipe.stages
    ]
    shapes, published = recipe_shapes(small), recipe_shapes(recipe)
    for side, shape in shapes.items():
        assert shape.config["model_type"] == published[side].config["model_type"]
        assert shape.width <= 160
        assert (shape.width == small.dim) == (published[side].width == recipe.dim)
    assert small.prompts.keys() == recipe.prompts.keys()
    assert all(len(prompt) < 16 for prompt in small.prompts.values())


def test_a_width_that_does_not_fit_is_refused():
    with pytest.raises(MarError, match="dim is 64, but vectors of the query encoder have 768"):
        shrink(load_recipe("mar-0.3b-4b", ["dim=64"]))


def test_a_teacher_without_a_small_counterpart_is_refused():
    with pytest.raises(MarError, match="stage joint: its teacher has no small counterpart"):
        shrink(load_recipe("mar-e5", ["stages.joint.teacher=org/model"]))
