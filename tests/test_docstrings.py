"""Docstrings begin with what a function returns or does; pages and docstrings keep to plain words."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RIDDLES = ("What ", "Whether ", "See ")
#: Words that readers stumbled over.
STUMBLES = re.compile(r"\banew\b|\bgoes on\b|\blikewise\b|\bmachine's\b|\bno part of\b", re.IGNORECASE)


def test_no_docstring_begins_with_what_whether_or_see():
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno if hasattr(node, 'lineno') else 1}"
        for path in sorted((ROOT / "src").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and (ast.get_docstring(node) or "").startswith(RIDDLES)
    ]
    assert found == []


@pytest.mark.parametrize(
    "pattern", ["README.md", "CHANGELOG.md", "docs/**/*.md", "src/**/*.py", "examples/*.py"]
)
def test_no_line_holds_a_word_that_readers_stumbled_over(pattern):
    pages = sorted(ROOT.glob(pattern))
    assert pages
    found = [
        f"{page.relative_to(ROOT)}:{number}: {line.strip()}"
        for page in pages
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
        if STUMBLES.search(line)
    ]
    assert found == []
