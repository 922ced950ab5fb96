"""`mar trim`."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from mar_st.cli import app
from tests.mar_st.vocabulary.vocabulary_helpers import OURS, encoder_folder


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text("\n".join(json.dumps({"text": text}) for text in OURS), encoding="utf-8")
    return str(path)


def test_figures_are_printed(texts, tmp_path):
    folder = encoder_folder(tmp_path / "full")
    arguments = ["--keep", "100", "--texts", texts]
    result = CliRunner().invoke(app, ["trim", str(folder), str(tmp_path / "cut"), *arguments])
    assert result.exit_code == 0, result.output
    assert "pieces:\n- 137\n- 100\n" in result.output
    assert "kept_texts: 1.0" in result.output
    result = CliRunner().invoke(app, ["trim", str(folder), str(tmp_path / "again"), *arguments, "--json"])
    figures = json.loads(result.stdout)
    assert figures["pieces"][1] == 100
    assert figures["parameters"][0] - figures["parameters"][1] == 32 * (figures["pieces"][0] + 7 - 100)
    assert (figures["kept_tokens"], figures["kept_texts"]) == (1.0, 1.0)
