from __future__ import annotations

import yaml

from mar_st.card import data_digest, write_card
from mar_st.recipe import load_recipe


def test_card_tells_data_seed_and_recipe(mar, tmp_path):
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
