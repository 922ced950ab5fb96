from __future__ import annotations

import json

import pytest
from mteb.results import TaskResult


@pytest.fixture
def scored(medteb, data_root, tmp_path):
    """Runs BM25 on the tiny STS edition: `scored(*more) -> (exit code, the task's cell, stderr)`."""

    def call(*more):
        code, out, err = medteb(
            "run", "-t", "MedTEBSTS", "-m", "bm25-char-bigram", "--json", "--output-folder", tmp_path / "out",
            *more,
        )  # fmt: skip
        return code, json.loads(out)["rows"][0]["scores"]["MedTEBSTS"] if out else None, err

    return call


def saved_result(output):
    (path,) = output.glob("results/*/*/MedTEBSTS.json")
    return path


def test_a_saved_score_that_is_not_a_finite_number_is_evaluated_again(scored, tmp_path):
    _, first, _ = scored()
    path = saved_result(tmp_path / "out")
    for value in (float("nan"), float("inf"), None, "0.5"):
        content = json.loads(path.read_text())
        content["scores"]["test"][0]["main_score"] = value
        path.write_text(json.dumps(content))
        code, again, err = scored()
        assert (code, again) == (0, first)
        assert f"the saved main score is not a finite number ({value!r}); evaluating again" in err
    assert "(saved before)" in scored()[2]


def test_further_splits_of_a_saved_result_do_not_count(scored, tmp_path):
    _, first, _ = scored()
    path = saved_result(tmp_path / "out")
    content = json.loads(path.read_text())
    content["scores"]["dev"] = [content["scores"]["test"][0] | {"main_score": -1.0}]
    path.write_text(json.dumps(content))
    code, again, err = scored()
    assert "(saved before)" in err
    assert (code, again) == (0, first)


def test_a_run_that_is_killed_before_its_item_scores_are_saved_is_repeated(scored, tmp_path, monkeypatch):
    def killed(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("medteb_mteb.commands.model_run.save_item_scores", killed)
        assert scored()[0] == 130
    code, cell, err = scored()
    assert code == 0
    assert "saved before" not in err
    assert cell["note"] is None
    assert cell["low"] is not None


def test_a_run_that_is_killed_while_it_writes_a_result_leaves_the_earlier_one(scored, tmp_path, monkeypatch):
    def killed(self, path):
        path.write_text("{")
        raise KeyboardInterrupt

    _, first, _ = scored()
    with monkeypatch.context() as patch:
        patch.setattr(TaskResult, "to_disk", killed)
        assert scored("--overwrite")[0] == 130
    _, again, err = scored()
    assert "(saved before)" in err
    assert again == first


def test_the_settings_of_all_tasks_of_a_model_are_kept(scored, tmp_path):
    scored()
    scored("-t", "MedTEBRetrieval")
    lines = saved_result(tmp_path / "out").with_name("run_settings.jsonl").read_text().splitlines()
    assert {json.loads(line)["task"] for line in lines} == {"MedTEBSTS", "MedTEBRetrieval"}


def test_a_saved_result_is_shown_though_its_data_cannot_be_read_again(
    medteb, data_root, tmp_path, monkeypatch
):
    from medteb_mteb.tasks.retrieval import MedTEBRetrieval

    def unreadable(self, *args, **kwargs):
        raise OSError("offline")

    args = (
        "run", "-t", "MedTEBRetrieval", "-m", "bm25-char-bigram", "-q", "--json",
        "--output-folder", tmp_path / "out",
    )  # fmt: skip
    code, out, err = medteb(*args)
    assert code == 0, err
    first = json.loads(out)["rows"][0]["scores"]["MedTEBRetrieval"]
    monkeypatch.setattr(MedTEBRetrieval, "load_data", unreadable)
    code, out, err = medteb(*args)
    assert code == 0, err
    again = json.loads(out)["rows"][0]["scores"]["MedTEBRetrieval"]
    assert again["score"] == first["score"]
    assert again["holes"]["note"] == "not known: the data of the saved result cannot be read"
