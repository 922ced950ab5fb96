"""The generator of the packaged mini edition."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.mini import build_mini
from tools.mini.sample import SAMPLE, write_sample

PACKAGED = Path(__file__).parents[2] / "tasks"


@pytest.mark.slow
def test_the_generator_gives_the_packaged_bytes(tmp_path: Path) -> None:
    built = build_mini(tmp_path)
    for edition in built:
        for file in [*edition.files, "README.md", "manifest.json"]:
            inside = f"{edition.task}/{file}"
            assert (tmp_path / inside).read_bytes() == (PACKAGED / inside).read_bytes(), inside


def test_the_sample_of_mar_zh_is_what_its_generator_writes(tmp_path: Path) -> None:
    write_sample(tmp_path)
    for file in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"):
        assert (tmp_path / file).read_bytes() == (SAMPLE / file).read_bytes(), file
