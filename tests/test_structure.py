"""Structure of the tests, and names of the classes of mar_st."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
#: In programs that a test starts, too.
IMPORT = re.compile(r"^\s*(?:from|import) tests[\w.]*\.test_\w+", re.MULTILINE)


@pytest.mark.parametrize(
    "folder",
    sorted({path.parent for path in TESTS.rglob("test_*.py")}),
    ids=lambda path: path.relative_to(TESTS).as_posix(),
)
def test_no_test_imports_another(folder):
    """What several share stands in `conftest.py` or a module of its own: a test can be renamed or removed."""
    importing = {
        path.name: IMPORT.findall(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.py"))
    }
    assert {name: lines for name, lines in importing.items() if lines} == {}


def test_no_two_public_classes_of_mar_st_share_a_name():
    modules = [ast.parse(path.read_text("utf-8")) for path in (TESTS.parent / "src" / "mar_st").rglob("*.py")]
    names = Counter(
        node.name
        for module in modules
        for node in module.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert len(names) > 300
    assert {name: count for name, count in names.items() if count > 1} == {}
