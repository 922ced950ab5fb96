from __future__ import annotations

import pytest
import yaml

from mar_st.recipe import RECIPES, RecipeError, load_recipe, recipe_names


@pytest.fixture
def content():
    return yaml.safe_load((RECIPES / "mar-mini.yaml").read_text(encoding="utf-8"))


def _load(tmp_path, content, overrides=None):
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
    return load_recipe(path, overrides)


@pytest.mark.parametrize("name", recipe_names())
def test_shipped_recipes_are_valid(name):
    recipe = load_recipe(name)
    assert recipe.name == name
    assert recipe.description


def test_mar_mini_follows_the_published_order():
    assert [stage.stage for stage in load_recipe("mar-mini").stages] == [
        "contrastive",
        "contrastive",
        "align",
        "joint",
    ]


def test_overrides(tmp_path, content):
    recipe = _load(tmp_path, content, ["stages.0.epochs=3", "seed=7", "data.0.path=/data"])
    assert (recipe.stages[0].epochs, recipe.seed, recipe.data[0].path) == (3, 7, "/data")
    with pytest.raises(RecipeError, match=r"no 'stages\.9\.epochs'"):
        _load(tmp_path, content, ["stages.9.epochs=1"])
    with pytest.raises(RecipeError, match="KEY=VALUE"):
        _load(tmp_path, content, ["seed"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sede": 1}, "sede: Extra inputs are not permitted"),
        ({"dim": 64}, "dim is 64 but the query encoder has hidden_size 128"),
        ({"query": None, "document": None}, "give a 'query' backbone"),
        ({"query": None}, "needs a 'query' backbone"),
        ({"prompts": {}}, "prompts' does not define"),
        ({"stages": []}, "stages"),
    ],
)
def test_impossible_recipes_are_refused(tmp_path, content, change, message):
    with pytest.raises(RecipeError, match=message):
        _load(tmp_path, {**content, **change})


def test_stage_checks(tmp_path, content):
    wide = [dict(stage) for stage in content["stages"]]
    wide[1]["dims"] = [64, 512]
    with pytest.raises(RecipeError, match=r"dims \(64, 512\) exceed the width 256"):
        _load(tmp_path, {**content, "stages": wide})
    with pytest.raises(RecipeError, match="stages come in the order retromae, contrastive"):
        _load(tmp_path, {**content, "stages": content["stages"][::-1]})
    with pytest.raises(RecipeError, match="must differ"):
        _load(tmp_path, {**content, "stages": [content["stages"][0]] * 2})


def test_unknown_names_list_the_known():
    with pytest.raises(RecipeError, match="Did you mean 'mar-mini'"):
        load_recipe("mar-mimi")


def test_broken_yaml(tmp_path):
    (tmp_path / "bad.yaml").write_text("name: [")
    with pytest.raises(RecipeError, match="not valid YAML"):
        load_recipe(tmp_path / "bad.yaml")


def test_extends_merges_mappings_and_replaces_the_rest(tmp_path, content):
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
    child = {
        "extends": "base.yaml",
        "name": "child",
        "query": {"max_length": 64},
        "stages": content["stages"][:1],
    }
    recipe = _load(tmp_path, child)
    assert recipe.name == "child"
    assert recipe.query.max_length == 64
    assert recipe.query.config == content["query"]["config"]
    assert len(recipe.stages) == 1
    assert _load(tmp_path, {**child, "document": None}).asymmetric is False


def test_extending_in_a_circle_is_refused(tmp_path):
    (tmp_path / "a.yaml").write_text("extends: b.yaml\n")
    (tmp_path / "b.yaml").write_text("extends: a.yaml\n")
    with pytest.raises(RecipeError, match="extends itself"):
        load_recipe(tmp_path / "a.yaml")
