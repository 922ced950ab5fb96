"""Tests of the option `--version`."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from mar_st.commands.version import Version


@pytest.fixture
def run():
    app, seen = typer.Typer(), []

    @app.command()
    def command(count: Annotated[int, typer.Argument()], version: Version = False):
        seen.append(count)

    return lambda *arguments: (CliRunner().invoke(app, list(arguments)), seen)


def test_the_version_is_printed_before_anything_else_is_checked_or_done(run):
    for arguments in (["--version"], ["many", "--version"], ["3", "--version"]):
        result, seen = run(*arguments)
        assert (result.exit_code, result.output) == (0, f"medteb {version('medteb')}\n")
        assert seen == []


def test_without_the_option_the_command_runs_and_prints_no_version(run):
    result, seen = run("3")
    assert (result.exit_code, result.output, seen) == (0, "", [3])
