"""Commands made of settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import pytest
import typer
from pydantic import Field
from typer.testing import CliRunner

from mar_st.errors import MarError
from mar_st.options import Argument, Settings, Switch, command, validated


class Count(Settings):
    source: Annotated[Path, Argument()] = Field(description="File to read.")
    out: Annotated[Path | None, Argument()] = Field(None, description="File to write.")
    batch_size: int = Field(8, ge=1, description="Texts per batch.")
    kind: Literal["words", "characters"] = Field("words", description="What is counted.")
    overrides: Annotated[tuple[str, ...], Switch("--set")] = Field((), description="KEY=VALUE.")
    progress: bool = Field(True, description="Draw a bar.")
    threads: int | Literal["auto"] = Field("auto", description="Threads.")
    tables: tuple[dict[str, int], ...] = ()


def count(settings: Count) -> Count:
    """Count words."""
    return settings


@pytest.fixture(scope="module")
def invoke():
    app = typer.Typer(rich_markup_mode=None)
    app.callback()(lambda: None)
    command(app, "count", Count, count, show=lambda done: f"{done.kind} of {done.source}")
    return lambda *words: CliRunner().invoke(app, ["count", *words])


def test_a_field_is_an_option_with_its_default(invoke):
    assert invoke("a.txt").output == "words of a.txt\n"
    given = json.loads(invoke("a.txt", "--json").output)
    assert given["batch_size"] == 8
    assert given["threads"] == "auto"
    assert given["out"] is None


def test_options_of_every_type_reach_the_settings(invoke):
    words = ("a", "b", "--batch-size", "2", "--set", "x=1", "--set", "y=2", "--no-progress", "--threads", "4")
    given = json.loads(invoke(*words, "--kind", "characters", "--json").output)
    assert given == {
        "source": "a", "out": "b", "batch_size": 2, "kind": "characters", "overrides": ["x=1", "y=2"],
        "progress": False, "threads": 4, "tables": [],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "named"),
    [(["a", "--batch-size", "0"], "--batch-size"), (["a", "--threads", "x"], "--threads"), ([], "SOURCE")],
)
def test_a_refusal_names_the_option(invoke, words, named):
    result = invoke(*words)
    assert result.exit_code == 2
    assert named in result.output


def test_help_holds_the_descriptions_and_no_field_of_python_only(invoke):
    text = invoke("--help").output
    assert "Count words." in text
    assert "Texts per batch." in text
    assert "--tables" not in text


def test_a_file_is_checked_with_the_same_rules():
    assert validated(Count, {"source": "a", "batch_size": 3}, "x.yaml").batch_size == 3
    with pytest.raises(MarError, match=r"x\.yaml: .*batch_size.*unknown"):
        validated(Count, {"source": "a", "batch_size": 0, "unknown": 1}, "x.yaml")
