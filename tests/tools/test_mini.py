"""The generator of the packaged mini edition."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.mini import build_mini

PACKAGED = Path(__file__).parents[2] / "tasks"


@pytest.mark.slow
def test_the_generator_gives_the_packaged_bytes(tmp_path: Path) -> None:
    built = build_mini(tmp_path)
    for edition in built:
        for file in [*edition.files, "README.md", "manifest.json"]:
            inside = f"{edition.task}/{file}"
            assert (tmp_path / inside).read_bytes() == (PACKAGED / inside).read_bytes(), inside
