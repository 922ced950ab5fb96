"""Pages and docstrings keep to plain words."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
#: Words that readers stumbled over.
STUMBLES = re.compile(
    r"\banew\b|\bgoes on\b|\blikewise\b|\bmachine's\b|\bno part of\b"
    r"|\bwhat is (asked|done|left|missing|there)\b",
    re.IGNORECASE,
)
PAGES = (
    "*.md", "docs/**/*.md", "models/**/*.md", "contrib/**/*.md", "Makefile", "src/**/*.py", "examples/*.py",
    "benchmarks/*.py", "tests/**/*.py",
)  # fmt: skip


@pytest.mark.parametrize("pattern", PAGES)
def test_no_line_holds_a_word_that_readers_stumbled_over(pattern):
    pages = sorted(set(ROOT.glob(pattern)) - {Path(__file__)})
    assert pages
    matches = [
        f"{page.relative_to(ROOT)}:{number}: {line.strip()}"
        for page in pages
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
        if STUMBLES.search(line)
    ]
    assert matches == []
