"""Tests of `mar encode`: its vectors, its summary and its error messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mar_st.cli import app
from mar_st.encode.folder import VectorFolder
from mar_st.errors import MarError

MINI = Path(__file__).parents[3] / "tasks" / "MedTEBRetrieval" / "corpus.jsonl"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(MINI.open(encoding="utf-8").readlines()[:40]), encoding="utf-8")
    return path


def run(*arguments: Any) -> Any:
    return CliRunner().invoke(app, ["encode", *map(str, arguments)])


def test_the_packaged_model_encodes_the_packaged_corpus(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "vectors"
    result = run("mar-mini", corpus, out, "--precision", "float16", "--dim", 64)

    assert result.exit_code == 0, result.output
    assert "count: 40" in result.stdout
    folder = VectorFolder.open(out)
    assert (len(folder), folder.dim, folder.manifest["model"]["name"]) == (40, 64, "mar-mini")

    again = run("mar-mini", corpus, out, "--precision", "float16", "--dim", 64, "--json")
    shown = json.loads(again.stdout)
    assert shown["settings"]["dtype"] == "float16"
    assert "shards" not in shown


def test_wrong_arguments_are_refused(corpus: Path, tmp_path: Path) -> None:
    assert isinstance(run("mar-mini", tmp_path / "no.jsonl", tmp_path / "v").exception, MarError)
    assert run("mar-mini", corpus, tmp_path / "v", "--precision", "int4").exit_code == 2
    assert run("mar-mini", corpus, tmp_path / "v", "--dim", 0).exit_code == 2
