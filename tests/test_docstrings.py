"""Pages and docstrings keep to plain words."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
#: Words that readers stumbled over.
STUMBLES = re.compile(r"\banew\b|\bgoes on\b|\blikewise\b|\bmachine's\b|\bno part of\b", re.IGNORECASE)


@pytest.mark.parametrize(
    "pattern", ["README.md", "CHANGELOG.md", "docs/**/*.md", "src/**/*.py", "examples/*.py"]
)
def test_no_line_holds_a_word_that_readers_stumbled_over(pattern):
    pages = sorted(ROOT.glob(pattern))
    assert pages
    matches = [
        f"{page.relative_to(ROOT)}:{number}: {line.strip()}"
        for page in pages
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
        if STUMBLES.search(line)
    ]
    assert matches == []
