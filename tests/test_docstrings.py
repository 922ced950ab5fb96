"""Docstrings begin with what a function returns or does, or with the name of what a class is."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
RIDDLES = ("What ", "Whether ", "See ")


def test_no_docstring_begins_with_what_whether_or_see():
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno if hasattr(node, 'lineno') else 1}"
        for path in sorted((ROOT / "src").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and (ast.get_docstring(node) or "").startswith(RIDDLES)
    ]
    assert found == []
