"""The recipe of mar-mini as plain content, and loading of changed content."""

from __future__ import annotations

import pytest
import yaml

from mar_st.recipes.load import RECIPES, load_recipe


@pytest.fixture
def content():
    """Content of the recipe mar-mini."""
    return yaml.safe_load((RECIPES / "mar-mini.yaml").read_text(encoding="utf-8"))


@pytest.fixture
def load(tmp_path):
    """Loads a recipe from content that is first written to a file: ``load(content, overrides)``."""

    def call(content, overrides=None):
        path = tmp_path / "recipe.yaml"
        path.write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
        return load_recipe(path, overrides)

    return call
