"""Structure of the tests themselves."""

from __future__ import annotations

import re
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
