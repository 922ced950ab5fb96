from __future__ import annotations

import mteb
import pytest
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.tasks import CMedQAv1

from medteb_mteb.folders import FolderError
from medteb_mteb.tasks import CMedQAv1Local, DataUnavailableError

EVERY = [f"d{i}" for i in range(6)]


@pytest.fixture
def copy(tmp_path, monkeypatch, retrieval_folder):
    retrieval_folder(tmp_path / "CMedQAv1-reranking", candidates=EVERY)
    monkeypatch.setenv("MEDTEB_DATA", str(tmp_path))
    return tmp_path / "CMedQAv1-reranking"


def test_without_a_copy_it_is_mtebs_task_unchanged(monkeypatch):
    monkeypatch.delenv("MEDTEB_DATA", raising=False)
    task = mteb.get_task("CMedQAv1-reranking")
    assert type(task) is CMedQAv1Local
    assert isinstance(task, CMedQAv1)
    assert task.metadata is CMedQAv1.metadata
    assert task.metadata.main_score == "map_at_1000"


def test_a_local_copy_is_read_and_has_its_own_revision(copy):
    task = mteb.get_task("CMedQAv1-reranking")
    assert task.metadata.revision != CMedQAv1.metadata.revision
    result = mteb.evaluate(mteb.get_model("bm25-char-bigram"), task, cache=None, show_progress_bar=False)
    scores = result.task_results[0]
    assert scores.dataset_revision == task.metadata.revision
    assert scores.get_score() == scores.scores["test"][0]["map_at_1000"] > 0.5
    # mteb's own benchmark made its task earlier; ours is made on demand and reads the copy
    ours = {t.metadata.name: t for t in mteb.get_benchmark("MedTEB(cmn, v1)").tasks}
    assert ours["CMedQAv1-reranking"].metadata.revision == task.metadata.revision


def test_a_copy_that_changes_is_refused(copy, retrieval_folder):
    task = mteb.get_task("CMedQAv1-reranking")
    retrieval_folder(copy, candidates=EVERY[::-1])
    with pytest.raises(FolderError, match="changed after the task was created"):
        task.load_data()


def test_a_broken_copy_is_reported_on_use_only(copy):
    (copy / "corpus.jsonl").unlink()
    task = mteb.get_task("CMedQAv1-reranking")
    with pytest.raises(FolderError, match="corpus"):
        task.load_data()


def test_no_data_says_how_to_use_a_copy(monkeypatch, tmp_path):
    def offline(*args, **kwargs):
        raise ConnectionError("Couldn't reach the Hub\nsecond line")

    monkeypatch.setattr(AbsTaskRetrieval, "load_data", offline)
    with pytest.raises(DataUnavailableError) as caught:
        mteb.get_task("CMedQAv2-reranking").load_data()
    message = str(caught.value)
    assert "CMedQAv2-reranking could not be fetched from the Hub (mteb/CMedQAv2-reranking)" in message
    assert "ConnectionError: Couldn't reach the Hub." in message
    assert "second line" not in message
    assert "hf download --repo-type dataset mteb/CMedQAv2-reranking" in message
    assert "set MEDTEB_DATA to its parent" in message
    monkeypatch.setenv("MEDTEB_DATA", str(tmp_path))
    with pytest.raises(DataUnavailableError, match=f"{tmp_path}/CMedQAv2-reranking/"):
        mteb.get_task("CMedQAv2-reranking").load_data()
