"""The command `medteb`: its help, and errors of the user."""

from __future__ import annotations

import pytest


def test_the_help_lists_the_usual_commands_first(medteb):
    code, out, _ = medteb("--help")
    assert code == 0
    names = ["run", "build", "validate", "edition", "anonymize", "assemble", "round-trip"]
    places = [out.index(f"│ {name} ") for name in names]
    assert places == sorted(places)


@pytest.mark.parametrize("words", [[], ["run"], ["build"], ["edition"]])
def test_without_arguments_the_help_is_printed(medteb, words):
    code, out, err = medteb(*words)
    assert (code, err) == (0, "")
    assert "Usage: " in out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["run", "--nope"], "No such option"),
        (["run", "-t", "MedTEBSTS"], "--model"),
        (["run", "-m", "bm25-jieba"], "No task"),
        (["run", "-m", "bm25-jieba", "-t", "NoTask"], "'NoTask' not found"),
        (["run", "-m", "bm25-jieba", "-b", "MedTEB"], "MedTEB"),
        (["run", "-m", "bm25-jieb", "-t", "STS12"], "Did you mean"),
        (["run", "-m", "./nowhere", "-t", "STS12"], "no such folder"),
        (["run", "-m", "bm25-jieba", "-m", "bm25-jieba", "-t", "STS12"], "given twice"),
        (["run", "-m", "bm25-jieba", "--data", "nowhere"], "nowhere"),
        (["edition", "show", "Nope"], "No edition of task 'Nope'"),
        (["edition", "show", "./nowhere"], "manifest.json"),
        (["dedup", "in.jsonl", "x", "--threshold", "2"], "--threshold"),
        (["dedup", "in.jsonl", "x"], "in.jsonl"),
        (["build", "nowhere.yaml"], "nowhere.yaml"),
        (["judge", "q", "d", "p", "x", "--judges", "nowhere.yaml"], "nowhere.yaml"),
    ],
)
def test_user_errors_are_one_line_and_exit_code_2(medteb, tmp_path, monkeypatch, args, message):
    monkeypatch.chdir(tmp_path)
    code, out, err = medteb(*args)
    assert (code, out) == (2, "")
    assert err.startswith("medteb: error: ")
    assert err.count("\n") == 1
    assert message in err
