"""Recipes as a whole: combinations that are refused, and the data of a stage."""

from __future__ import annotations

import pytest
import yaml

from mar_st.errors import MarError
from mar_st.recipes.load import RECIPES, load_recipe


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sede": 1}, "sede: Extra inputs are not permitted"),
        ({"query": None, "document": None}, "give a 'query' backbone"),
        ({"query": None}, "needs a 'query' backbone"),
        ({"prompts": {}}, "prompts' does not define"),
    ],
)
def test_impossible_recipes_are_refused(load, content, change, message):
    with pytest.raises(MarError, match=message):
        load({**content, **change})


def test_vectors_of_token_pairs_need_mean_hidden_states_and_no_retromae(load, content):
    recipe = load_recipe("mar-e5", ["query.context_means=[texts]", "query.bigrams=10"])
    assert recipe.query.bigrams == 10
    retromae = {"stage": "retromae", "name": "pretrain", "batch_size": 8, "learning_rate": 1e-3}
    whole = yaml.safe_load((RECIPES / "mar-e5.yaml").read_text(encoding="utf-8"))
    whole["query"] |= {"context_means": ["texts"], "bigrams": 10}
    with pytest.raises(MarError, match="stage pretrain: RetroMAE does not read the 'bigrams'"):
        load({**whole, "stages": [retromae, *whole["stages"]]})


def test_impossible_stages_are_refused(load, content):
    with pytest.raises(MarError, match="stages come in the order retromae, contrastive"):
        load({**content, "stages": content["stages"][::-1]})
    with pytest.raises(MarError, match="must differ"):
        load({**content, "stages": [content["stages"][0]] * 2})


TAUGHT = {"stage": "joint", "name": "joint", "batch_size": 8, "learning_rate": 1e-3, "temperature": 0.1,
          "kl_weight": 1.0}  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kl_scope": "group", "negatives": 0}, "kl_scope: group compares .*, or kl_scope: batch"),
        ({"teacher": "cross-encoder:x", "negatives": 0}, "a cross-encoder compares"),
        ({"teacher": "cross-encoder:x", "kl_scope": "batch"}, "use kl_scope: group"),
        ({"teacher": "query"}, "the query encoder is the student"),
        ({"kl_weight": 0.0, "contrastive_weight": 0.0}, "both zero"),
    ],
)
def test_impossible_teachers_are_refused(load, content, fields, message):
    stages = [*content["stages"][:-1], {**TAUGHT, **fields}]
    with pytest.raises(MarError, match=message):
        load({**content, "stages": stages})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["query.context_means=[nowhere]"], "query: context_means: 'nowhere' is not a data entry; choose"),
        (["stages.align.data=[nowhere]"], "stage align: 'nowhere' is not a data entry; choose from"),
        (["stages.joint.mini_batch_size=100000"], "stage joint: mini_batch_size exceeds batch_size"),
        (["normalise=false"], "normalise: false is for symmetric recipes"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(changes, message):
    with pytest.raises(MarError, match=message):
        load_recipe("mar-e5", changes)


def test_single_texts_are_for_stages_that_need_no_pairs(load, content):
    texts = {"name": "texts", "path": "texts.jsonl", "form": "texts", "role": "query"}
    recipe = load({**content, "data": [*content["data"], texts]})
    used = {stage.name: [entry.name for entry in recipe.data_of(stage)] for stage in recipe.stages}
    pairs = [entry["name"] for entry in content["data"]]
    assert used["align"] == [*pairs, "texts"]
    assert used["query-init"] == used["joint"] == pairs
    with pytest.raises(MarError, match="stage joint needs pairs; the data 'texts' are single texts"):
        load({**content, "data": [*content["data"], texts]}, ["stages.joint.data=[texts]"])


def test_a_recipe_is_asymmetric_if_its_last_stage_joins_the_sides(load, content):
    last = {len(content["stages"]): True, 4: True, 3: False, 1: False}
    for number, joined in last.items():
        assert load({**content, "stages": content["stages"][:number]}).asymmetric is joined


def test_mining_needs_triples():
    mined = ["stages.document-init.mine={}", "stages.document-init.negatives=1"]
    assert load_recipe("mar-mini", mined).stages[1].mine.range_max == 100
    with pytest.raises(MarError, match=r"stage document-init: 'mine' needs triples; .* pairs"):
        load_recipe("mar-mini", [*mined, "data.sts.form=pairs"])
