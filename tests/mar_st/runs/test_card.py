from __future__ import annotations

import json
from importlib.metadata import version

import yaml

from mar_st.data import data_digest
from mar_st.model.describe import count_parameters
from mar_st.model.names import packaged_folder
from mar_st.recipes.load import load_recipe
from mar_st.recipes.schema import Recipe
from mar_st.runs.card import write_card


def test_card_states_data_seed_and_recipe(mar, tmp_path):
    mar.save_pretrained(str(tmp_path))
    recipe = load_recipe("mar-mini")
    write_card(tmp_path, recipe, ["a" * 64, "b" * 64])
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    _, header, body = text.split("---\n", 2)
    assert yaml.safe_load(header)["library_name"] == "sentence-transformers"
    assert "a" * 64 in body
    assert "b" * 64 in body
    assert f"Seed {recipe.seed}" in body
    kept = yaml.safe_load(body.split("```yaml\n")[1].split("```")[0])
    assert [stage["name"] for stage in kept["stages"]] == [stage.name for stage in recipe.stages]


def test_the_header_states_licence_languages_size_and_training(mar, tmp_path):
    mar.save_pretrained(str(tmp_path))
    recipe = load_recipe("mar-mini")
    write_card(tmp_path, recipe, ["a" * 64, "b" * 64])
    header = yaml.safe_load((tmp_path / "README.md").read_text(encoding="utf-8").split("---\n")[1])
    assert header["license"] == recipe.licence == "apache-2.0"
    assert header["language"] == ["zh"]
    assert header["release_date"] == "2026-11-21"
    assert header["n_parameters"] == sum(p.numel() for p in mar.parameters())
    assert header["training_code"] == "mar train mar-mini"
    other = load_recipe("mar-0.3b-4b")  # says nothing of its weights' licence
    write_card(tmp_path, other, ["c" * 64] * len(other.data))
    assert "license" not in yaml.safe_load((tmp_path / "README.md").read_text().split("---\n")[1])


def test_the_packaged_card_is_that_of_its_recipe():
    card = (packaged_folder() / "README.md").read_text(encoding="utf-8")
    recipe = load_recipe("mar-mini")
    header = yaml.safe_load(card.split("---\n")[1])
    assert (header["license"], header["language"]) == (recipe.licence, list(recipe.languages))
    assert header["n_parameters"] == count_parameters(packaged_folder())
    kept = yaml.safe_load(card.split("```yaml\n")[1].split("```")[0])
    assert kept["licence"] == recipe.licence


def test_data_digest_follows_content_and_names(tmp_path):
    (tmp_path / "a.jsonl").write_text("1")
    (tmp_path / "b.jsonl").write_text("2")
    first = data_digest(str(tmp_path))
    assert data_digest(str(tmp_path)) == first
    (tmp_path / "b.jsonl").write_text("3")
    changed = data_digest(str(tmp_path))
    assert changed != first
    (tmp_path / "b.jsonl").rename(tmp_path / "c.jsonl")
    assert data_digest(str(tmp_path)) not in (first, changed)
    assert data_digest(str(tmp_path / "a.jsonl")) != first


def test_card_states_results_and_versions(mar, tmp_path):
    mar.save_pretrained(str(tmp_path / "model"))
    recipe = load_recipe("mar-mini", ["evaluation={path: dev, split: dev}"])
    stages = {}
    for number, stage in enumerate(recipe.stages[:2]):
        stages[stage.name] = tmp_path / stage.name
        stages[stage.name].mkdir()
        rows = [
            {"step": 0, "eval_ndcg@10": 0.1, "eval_runtime": 1.0},
            {"step": 20, "loss": 0.9},
            {"step": 35, "loss": 0.5 + number, "mfu": None},
            {"step": 35, "eval_ndcg@10": 0.4321 + number, "eval_runtime": 1.0},
            {"step": 35, "train_runtime": 3.0},
        ]
        (stages[stage.name] / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_card(tmp_path / "model", recipe, ["a" * 64, "b" * 64], stages)
    text = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    results = text.split("## Results")[1].split("## Recipe")[0]
    assert "`dev` (dev)" in results
    first, second = recipe.stages[:2]
    assert f"| {first.name} | {first.stage} | 35 | 0.5000 | ndcg@10 0.4321 |" in results
    assert f"| {second.name} | {second.stage} | 35 | 1.5000 | ndcg@10 1.4321 |" in results
    assert recipe.stages[2].name not in results
    assert f"sentence-transformers {version('sentence-transformers')}" in text.split("## Versions")[1]
    # Without records there is nothing to tell.
    write_card(tmp_path / "model", recipe, ["a" * 64, "b" * 64])
    assert "## Results" not in (tmp_path / "model" / "README.md").read_text(encoding="utf-8")


def test_a_setting_of_null_in_place_of_a_default_stays_in_the_recipe(mar, tmp_path):
    mar.save_pretrained(str(tmp_path))
    mining = ["stages.document-init.negatives=1", "stages.document-init.mine={near_duplicate: null}"]
    recipe = load_recipe("mar-mini", mining)
    write_card(tmp_path, recipe, ["a" * 64, "b" * 64])
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    kept = yaml.safe_load(text.split("```yaml\n")[1].split("```")[0])
    assert Recipe.model_validate(kept) == recipe
