"""The generated pages of the site: every command with its help, every field of a recipe with its meaning."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def hooks():
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "docs" / "hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_field_of_a_recipe_has_a_meaning(hooks):
    rows = [line for line in hooks.recipe_fields().splitlines() if line.startswith("| `")]
    without = [line for line in rows if re.split(r"(?<!\\)\|", line)[4].strip() == ""]
    assert len(rows) > 80
    assert without == []


@pytest.mark.thorough(but=["mar-expected0"])
@pytest.mark.parametrize(
    ("program", "expected"),
    [("mar", {"mar train", "mar serve"}), ("medteb", {"medteb run", "medteb edition verify"})],
)
def test_the_help_of_every_command_is_on_a_page(hooks, program, expected):
    page = hooks.commands(program)
    titles = set(re.findall(r"^## (.+)$", page, re.MULTILINE))
    assert expected <= titles
    for title in titles:
        assert f"Usage: {title} " in page


def test_links_to_files_outside_of_docs_point_to_their_copies(hooks):
    text = "[build](../../examples/clinic/build.yaml) and [card](../../models/mar-zh/README.md)"
    expected = "[build](../examples/clinic/build.yaml) and [card](../models/mar-zh/README.md)"
    assert hooks.on_page_markdown(text) == expected
    for name in hooks.OUTSIDE:
        assert (ROOT / name).is_file()


def test_all_pages_are_in_the_navigation():
    listed = set(re.findall(r"[\w/.-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8")))
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    assert pages <= listed
