"""Recipes that are cut to a few steps on a part of their data."""

from __future__ import annotations

import pytest

from mar_st.recipes.load import load_recipe
from mar_st.rehearsal.rehearse import REHEARSAL_LIMITS, SAVE_STEPS, STEPS
from mar_st.rehearsal.shorten import Shortened, shorten

FEW = Shortened(steps=3, rows=100, batches=2, every=2)


def test_an_entry_of_small_weight_gives_enough_rows_for_its_batches():
    recipe = load_recipe("mini-symmetric-query", ["data.sts.weight=0.3", "data.sts.limit=100000"])
    (size,) = {stage.batch_size for stage in recipe.stages}
    (limit,) = (entry.limit for entry in shorten(recipe, REHEARSAL_LIMITS).data if entry.name == "sts")
    assert int(0.3 * limit) >= 2 * size
    assert 0.3 * (limit - 1) < 2 * size


def test_the_real_recipe_is_shortened_and_nothing_else():
    recipe = load_recipe("mar-0.3b-4b")
    short = shorten(recipe, REHEARSAL_LIMITS)
    assert {stage.max_steps for stage in short.stages} == {STEPS}
    limits = {entry.name: entry.limit for entry in short.data}
    assert limits["unsupervised"] == 2 * 19200
    assert limits["finetune"] == 2 * 640
    assert limits["align-queries"] == 2 * 2560
    assert short.evaluation.every == SAVE_STEPS
    back = short.model_copy(
        update={"stages": recipe.stages, "data": recipe.data, "evaluation": recipe.evaluation}
    )
    assert back == recipe
    assert [s.model_copy(update={"max_steps": None}) for s in short.stages] == list(recipe.stages)


@pytest.mark.parametrize(
    ("settings", "limit"),
    [
        ([], 128),  # two batches of 64
        (["data.sts.limit=50"], 50),
        (["data.sts.limit=5000"], 128),
        (["data.sts.weight=4"], 128),
        (["data.sts.weight=0.5"], 256),
        (["stages.document-init.data=[retrieval]", "stages.align.data=[retrieval]"], 100),
    ],
)
def test_an_entry_keeps_what_its_largest_stage_needs(settings, limit):
    recipe = load_recipe("mar-mini", ["stages.align.batch_size=64", *settings])
    limits = {entry.name: entry.limit for entry in shorten(recipe, FEW).data}
    assert limits == {"retrieval": 128, "sts": limit}


def test_a_shortened_recipe_stays_as_it_is():
    once = shorten(load_recipe("mar-0.3b-4b"), FEW)
    assert shorten(once, FEW) == once
    assert {stage.max_steps for stage in once.stages} == {3}
    assert once.evaluation.every == 2
    assert shorten(load_recipe("mar-mini"), FEW).evaluation is None
