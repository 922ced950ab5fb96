from __future__ import annotations

import logging
import subprocess
from contextlib import suppress

import mteb
import pytest
from mteb.cache import ResultCache

from mar_st.errors import MarError
from medteb_mteb import register_tasks
from medteb_mteb.folders.tasks import task_from_folder

MODEL = "bm25-char-bigram"


@pytest.fixture
def cache(tmp_path, monkeypatch) -> ResultCache:
    """A cache beside an empty copy of the results repository."""
    cache = ResultCache(tmp_path / "results")

    def git(*arguments: str) -> None:
        subprocess.run(["git", *arguments], cwd=cache.remote_repo_path, check=True, capture_output=True)

    cache.remote_results_path.mkdir(parents=True)
    (cache.remote_results_path / "README.md").write_text("results")
    git("init", "-b", "main")
    git("config", "user.email", "someone@example.org")
    git("config", "user.name", "someone")
    git("add", ".")
    git("commit", "-m", "start")
    monkeypatch.setattr(ResultCache, "download_from_remote", lambda self, *args, **kwargs: None)
    return cache


def evaluate(cache: ResultCache, *tasks, model: str = MODEL) -> None:
    mteb.evaluate(mteb.get_model(model, device="cpu"), list(tasks), cache=cache, show_progress_bar=False)


def packaged_sts(monkeypatch):
    """The packaged STS task on an edition as small as the packaged digest allows: its result alone."""
    monkeypatch.delenv("MEDTEB_DATA", raising=False)
    return mteb.get_task("MedTEBSTS")


def committed(cache: ResultCache) -> str:
    """All names and contents in the commit of the submission."""
    shown = subprocess.run(
        ["git", "show", "HEAD"], cwd=cache.remote_repo_path, check=True, capture_output=True, text=True
    )
    return shown.stdout


@pytest.fixture
def clinic(make_folder):
    """A task of a folder, registered as `MEDTEB_TASKS` does."""
    task = task_from_folder(make_folder("Retrieval", "st-mary-oncology"))
    with suppress(MarError):  # of another test
        register_tasks([task])
    return task


@pytest.mark.thorough
@pytest.mark.parametrize("named", [True, False])
def test_names_of_a_clinic_are_not_submitted(cache, clinic, monkeypatch, caplog, named):
    evaluate(cache, clinic, packaged_sts(monkeypatch))
    with caplog.at_level(logging.WARNING):
        outcome = cache.submit_results(f"medteb/{MODEL}" if named else None)
    assert outcome["status"] == "ready_for_submission"
    assert outcome["result_count"] == 1
    everything = committed(cache)
    assert "MedTEBSTS" in everything
    assert "st-mary" not in everything  # neither a file nor a line of the run settings
    assert f"medteb/{MODEL} on st-mary-oncology out of the submission" in caplog.text
    assert "the task is a folder of this machine" in caplog.text


def test_names_of_a_folder_that_is_not_registered_are_not_submitted(cache, make_folder):
    evaluate(cache, task_from_folder(make_folder("Retrieval", "st-john-urology")))
    assert cache.submit_results()["status"] == "no_changes"


@pytest.mark.thorough
def test_own_editions_and_models_are_not_submitted(cache, data_root, encoder_folder, monkeypatch, caplog):
    evaluate(cache, mteb.get_task("MedTEBSTS"))
    with caplog.at_level(logging.WARNING):
        assert cache.submit_results(f"medteb/{MODEL}")["status"] == "no_changes"
    assert "the data are a folder of this machine" in caplog.text
    evaluate(cache, packaged_sts(monkeypatch), model=str(encoder_folder))
    with caplog.at_level(logging.WARNING):
        assert cache.submit_results("local/tiny-encoder")["status"] == "no_changes"
    assert "local/tiny-encoder on MedTEBSTS out of the submission" in caplog.text
    assert "the model is a folder of this machine" in caplog.text
