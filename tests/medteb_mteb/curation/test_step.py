"""The protocol of steps: commands from settings, resumption, redoing, lineage."""

import json
import os
from pathlib import Path
from typing import Annotated

import pytest
import typer
from pydantic import Field
from typer.testing import CliRunner

from mar_st.errors import MarError
from mar_st.options import Argument
from medteb_mteb.curation.lineage import lineage
from medteb_mteb.curation.step import Counts, Input, Runtime, Step, StepSettings, add_step, perform


class UpperSettings(StepSettings):
    source: Annotated[Path, Argument("IN"), Input("texts")] = Field(alias="in", description="Texts.")
    suffix: str = Field("", description="Added to every line.")
    batch_size: Annotated[int, Runtime()] = Field(1, ge=1, description="Lines at once.")


RUNS: list[str] = []


def upper(settings: UpperSettings) -> Counts:
    """Write lines in capitals."""
    RUNS.append(settings.out.name)
    path = settings.source / "lines.txt" if settings.source.is_dir() else settings.source
    lines = [line.upper() + settings.suffix for line in path.read_text().splitlines()]
    (settings.out / "lines.txt").write_text("\n".join(lines))
    stopped = "no money" if settings.suffix == "stop" else ""
    return Counts(len(lines), details={"kept": len(lines)}, stopped=stopped)


STEP = Step("upper", UpperSettings, upper, "texts")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    RUNS.clear()
    path = tmp_path / "in.txt"
    path.write_text("a\nb")
    return path


def test_a_finished_step_is_skipped_and_a_changed_one_redone(source: Path, tmp_path: Path) -> None:
    def run(name: str = "one", **options: object) -> bool:
        settings = UpperSettings.model_validate({"in": source, "out": tmp_path / name, **options})
        return perform(STEP, settings)[1]

    assert not run()
    assert run()
    assert run(batch_size=5)
    assert not run(suffix="!")
    source.write_text("c")
    assert not run(suffix="!")
    assert RUNS == ["one"] * 3
    assert (tmp_path / "one" / "lines.txt").read_text() == "C!"
    # A step that stopped is not finished; the next one refuses it.
    assert not run("two", suffix="stop")
    assert not run("two", suffix="stop")
    with pytest.raises(MarError, match="not finished"):
        lineage(tmp_path / "two")


def test_a_changed_result_redoes_the_later_step(source: Path, tmp_path: Path) -> None:
    def both(suffix: str) -> list[bool]:
        one, two = tmp_path / "one", tmp_path / "two"
        first = perform(STEP, UpperSettings.model_validate({"in": source, "out": one, "suffix": suffix}))
        return [first[1], perform(STEP, UpperSettings.model_validate({"in": one, "out": two}))[1]]

    assert both("") == [False, False]
    assert both("") == [True, True]
    assert both("x") == [False, False]
    assert [record["settings"]["suffix"] for record in lineage(tmp_path / "two")] == ["x", ""]


def test_foreign_folders_and_the_input_are_not_written(source: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    for out in ("mine", "mine/inside"):
        given = {"in": source if out == "mine" else tmp_path / "mine", "out": tmp_path / out}
        with pytest.raises(MarError, match="another folder"):
            perform(STEP, UpperSettings.model_validate(given))
    assert (tmp_path / "mine" / "notes.txt").read_text() == "keep"


def test_the_command_has_the_options_of_the_settings(source: Path, tmp_path: Path) -> None:
    app = typer.Typer()
    add_step(app, STEP)
    add_step(app, Step("other", UpperSettings, upper, "texts"))
    runner = CliRunner()
    done = runner.invoke(app, ["upper", str(source), str(tmp_path / "o"), "--suffix", "?", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["rows"] == 2
    assert (tmp_path / "o" / "lines.txt").read_text() == "A?\nB?"
    stopped = runner.invoke(app, ["upper", str(source), str(tmp_path / "p"), "--suffix", "stop"])
    assert stopped.exit_code == 1
    assert runner.invoke(app, ["upper", str(source), "x", "--batch-size", "0"]).exit_code == 2


def test_a_pipe_in_the_place_of_a_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(MarError, match="pipe or a device"):
        perform(STEP, UpperSettings.model_validate({"in": tmp_path / "pipe", "out": tmp_path / "o"}))
