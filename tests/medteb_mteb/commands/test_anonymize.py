from __future__ import annotations

import json
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from medteb_mteb.commands.anonymize import anonymize
from medteb_mteb.commands.errors import UserError
from medteb_mteb.curation.files.records import BuildError

app = typer.Typer()
app.command()(anonymize)


def run(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def source(tmp_path):
    file = tmp_path / "raw.csv"
    file.write_text("问题,科室\n患者王秀兰头疼,内科\n电话13812345678,外科\n", encoding="utf-8")
    return file


def test_the_summary_is_printed_for_people_or_as_json(source, tmp_path):
    shown = run(source, tmp_path / "out", "--column", "text=问题", "-q").output
    assert "2 texts, 2 identifiers replaced in 2 of them" in shown
    assert "columns left out (--keep-meta NAME keeps one): 科室" in shown
    arguments = [source, tmp_path / "two", "--column", "text=问题", "--kinds", "PHONE,EMAIL", "--json", "-q"]
    shown = json.loads(run(*arguments, "--keep-meta", "科室").output)
    assert (shown["identifiers"], shown["left_out"]) == ({"PHONE": 1}, [])


def test_ones_own_sentences_are_checked_for_recall_and_precision(tmp_path):
    file = tmp_path / "own.txt"
    file.write_text("患者[[NAME:王秀兰]]，头疼\n没有\n代号[[NAME:甲乙丙]]\n", encoding="utf-8")
    shown = run("--check", file, "--errors").output
    assert "3 sentences; of 1 without identifiers 0 were changed" in shown
    assert "line 3: missed NAME '甲乙丙'" in shown
    shown = json.loads(run("--check", file, "--json").output)
    assert (shown["all"]["recall"], shown["all"]["precision"]) == (0.5, 1.0)
    assert "甲乙丙" not in json.dumps(shown, ensure_ascii=False)
    assert json.loads(run("--check", file, "--kinds", "PHONE", "--json").output)["all"]["marked"] == 0


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((), UserError, "expected IN and OUT"),
        (("in", "out", "--check", "x"), UserError, "leave IN and OUT away"),
        (("in", "out", "--errors"), UserError, "goes with --check"),
        (("in", "out", "--review", "sheet.csv"), UserError, "expected IN and no OUT"),
        (("in", "out", "--column", "问题"), UserError, "FIELD=COLUMN"),
        (("in", "out", "--kinds", "PHONEE"), BuildError, "Did you mean PHONE"),
        (("in", "out", "--mode", "blur"), BuildError, "mode must be placeholder or surrogate"),
    ],
)
def test_errors_say_what_was_expected(arguments, error, message):
    with pytest.raises(error, match=message):
        run(*arguments)


def test_the_command_module_is_cheap_to_import():
    code = "import sys, medteb_mteb.commands.anonymize; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"presidio_analyzer", "regex", "jieba", "spacy"} & set(done.stdout.split())


def test_a_strict_run_accepts_the_reviewed_sheet(source, tmp_path):
    sheet = tmp_path / "sheet.csv"
    shown = run(source, "--review", sheet, "--column", "text=问题", "-q").output
    assert "0 doubtful values" in shown
    shown = run(
        source, tmp_path / "out", "--strict", "--reviewed", sheet, "--column", "text=问题", "-q"
    ).output
    assert "2 identifiers replaced" in shown
