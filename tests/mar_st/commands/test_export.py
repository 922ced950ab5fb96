"""`mar export`."""

from __future__ import annotations

import json

import pytest
import typer
from typer.testing import CliRunner

from mar_st.commands.export import export
from mar_st.errors import MarError
from mar_st.online import load_query_encoder
from tests.mar_st.export.conftest import TEXTS, gte_folder  # noqa: F401 -- fixture


@pytest.fixture
def app():
    program = typer.Typer()
    program.command()(export)
    return program


@pytest.fixture
def queries(tmp_path):
    path = tmp_path / "queries.jsonl"
    path.write_text("\n".join(json.dumps({"text": text}) for text in TEXTS), encoding="utf-8")
    return path


@pytest.mark.thorough
def test_a_summary_is_printed_and_the_encoder_can_be_loaded(app, gte_folder, queries, tmp_path):  # noqa: F811
    out = tmp_path / "out"
    arguments = [str(gte_folder), str(out), "--weight-format", "fp32,int8", "--calibrate", str(queries)]
    result = CliRunner().invoke(app, [*arguments, "--threads", "1"], catch_exceptions=False)
    assert result.exit_code == 0
    assert "gte query encoder of 32 dimensions" in result.stdout
    assert result.stdout.count("openvino-") == 3
    assert result.stdout.count("\n* ") == 1
    assert load_query_encoder(out).encode(["头疼"]).shape == (1, 32)


@pytest.mark.slow
def test_json_is_alone_on_standard_output(app, gte_folder, tmp_path):  # noqa: F811
    arguments = [str(gte_folder), str(tmp_path / "out"), "--format", "openvino", "--threads", "1", "--json"]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    listing = json.loads(result.stdout)
    assert listing["chosen"] == "openvino-int8"
    assert listing["variants"]["openvino-int8"]["report"]["cosine_mean"] > 0.98


def test_errors_say_what_to_do(app, gte_folder, tmp_path):  # noqa: F811
    with pytest.raises(MarError, match="weight format is one of"):
        CliRunner().invoke(
            app, [str(gte_folder), str(tmp_path / "out"), "--weight-format", "int3"], catch_exceptions=False
        )
