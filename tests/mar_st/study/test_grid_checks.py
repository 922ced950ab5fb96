"""Errors that a study raises before it trains a model."""

from __future__ import annotations

import pytest
import yaml

from mar_st.errors import MarError
from mar_st.study import StudyError, load_study
from mar_st.study.grid import run_study


def test_an_unknown_prompt_is_refused_before_training(run, trained, change, study_folder):
    tasks = yaml.safe_load((study_folder / "study.yaml").read_text(encoding="utf-8"))["tasks"]
    change(tasks=[{**tasks[0], "prompt": "nowhere"}, *tasks[1:]])
    with pytest.raises(StudyError, match="asks for the prompt 'nowhere'; row full has document, query"):
        run()
    assert trained == []


def test_an_unknown_prompt_of_a_finished_model_is_refused_before_training(
    run, trained, change, study_folder, encoder_folder
):
    tasks = yaml.safe_load((study_folder / "study.yaml").read_text(encoding="utf-8"))["tasks"]
    row = {"name": "other", "model": str(encoder_folder), "prompts": {"another": "x"}}
    rows = [{"name": "full", "changes": {"prompts": {"own": "y"}}}, row]
    change(tasks=[{**tasks[0], "prompt": "own"}], rows=rows, published=[])
    with pytest.raises(StudyError, match=r"the prompt 'own'; row other has .*another"):
        run()
    assert trained == []


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"tasks": [{"name": "faq", "path": "nowhere"}]}, MarError, "No task at nowhere"),
        ({"rows": [{"name": "full", "set": {"stages.4.epochs": 1}}]}, MarError, "the recipe has no"),
        ({"rows": [{"name": "full", "set": {"data.0.path": "gone.jsonl"}}]}, MarError, "gone.jsonl"),
        (
            {"rows": [{"name": "full"}, {"name": "x", "changes": {"query": {
                "source": "./gone", "config": None, "tokenizer": None}}}]},
            MarError,
            "query backbone: There is no folder ./gone",
        ),
        (
            {"rows": [{"name": "full"}, {"name": "x", "set": {"data.answers.prompt": "nowhere"}}]},
            MarError,
            "the prompt 'nowhere', which 'prompts' does not define",
        ),
        (
            {"rows": [{"name": "full"}, {"name": "x", "set": {"data.answers.negatives": 1}}]},
            MarError,
            "has no negatives but 1 are asked for",
        ),
        (
            {"rows": [{"name": "full"}, {"name": "x", "set": {"stages.joint.negatives": 2}}]},
            MarError,
            "has no negatives but 2 are asked for",
        ),
    ],
)  # fmt: skip
def test_missing_inputs_are_noticed_before_training(change, trained, study_folder, settings, error, message):
    study = load_study(change(**settings, published=[]))
    with pytest.raises(error, match=message):
        run_study(study, study_folder / "out", say=lambda line: None)
    assert trained == []


@pytest.mark.parametrize(
    ("side", "changes", "message"),
    [
        (
            "document",
            {"pooling": "lasttoken"},
            "document encoder is pooled at its EOS token, but",
        ),
        ("query", {"projection": 16}, "the prompt 'nowhere', which neither 'prompts' nor a source defines"),
    ],
)
def test_what_a_source_lacks_is_noticed_before_training(
    change, trained, study_folder, encoder_folder, side, changes, message
):
    source = {"source": str(encoder_folder), "config": None, "tokenizer": None, **changes}
    row = {"name": "x", "changes": {side: source}}
    if side == "query":
        row["set"] = {"data.answers.prompt": "nowhere"}
    study = load_study(change(rows=[{"name": "full"}, row], published=[]))
    with pytest.raises(MarError, match=message):
        run_study(study, study_folder / "out", say=lambda line: None)
    assert trained == []


@pytest.mark.parametrize("content", ['{"name": "other"}', '{"name": "tiny-st', "", "\0" * 9, "[]"])
def test_the_folder_of_another_study_is_refused(run, study_folder, content):
    (study_folder / "out").mkdir()
    (study_folder / "out/study.json").write_text(content, encoding="utf-8")
    with pytest.raises(StudyError, match="holds another study"):
        run()


def test_a_launch_with_many_processes_is_refused(run, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(StudyError, match="one process per device"):
        run()
