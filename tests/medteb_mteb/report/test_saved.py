"""Saved results: what counts as one, and their means by source and against time."""

from __future__ import annotations

import json

import pytest
from tests.medteb_mteb.results import write_result

from medteb_mteb.report.saved import (
    SavedScore,
    SourceMean,
    TimedScore,
    against_time,
    means_by_source,
    read_saved,
)

WIKI = ("clustering_wiki_syndromes_dataset", "classification_wiki_pain_vs_fever_dataset")


def test_results_come_in_the_order_of_model_and_task(tmp_path):
    write_result(tmp_path, "b/two", "BIOSSES", 0.7, 40.0)
    write_result(tmp_path, "a/one", "X", 0.2)
    write_result(tmp_path, "a/one", "BIOSSES", 0.5)
    assert read_saved(tmp_path) == [
        SavedScore("a/one", "BIOSSES", 0.5, 2.0),
        SavedScore("a/one", "X", 0.2, 2.0),
        SavedScore("b/two", "BIOSSES", 0.7, 40.0),
    ]


def test_the_score_is_the_mean_over_splits_and_languages(tmp_path):
    path = write_result(tmp_path, "a/one", "X", 0.0)
    scores = {"test": [{"main_score": 0.2}, {"main_score": 0.4}], "dev": [{"main_score": 0.9}]}
    path.write_text(json.dumps({"task_name": "X", "scores": scores, "evaluation_time": 3}))
    (one,) = read_saved(tmp_path)
    assert (one.score, one.seconds) == (pytest.approx(0.5), 3.0)


WHOLE = {"task_name": "X", "scores": {"test": [{"main_score": 0.5}]}, "evaluation_time": 1.0}


def changed(**fields):
    return json.dumps(WHOLE | fields).encode()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        json.dumps(WHOLE).encode()[:-20],
        "测试".encode("gbk"),
        b"[]",
        b"null",
        b"[" * 100_000,
        changed(scores={}),
        changed(scores={"test": []}),
        changed(scores=[{"main_score": 0.5}]),
        changed(scores={"test": [{"ndcg_at_10": 0.5}]}),
        changed(scores={"test": [{"main_score": None}]}),
        changed(scores={"test": [{"main_score": 10**400}]}),
        changed(evaluation_time=10**400),
    ],
)
def test_a_file_that_is_no_result_is_named(tmp_path, content):
    write_result(tmp_path, "a/one", "Y", 0.5)
    write_result(tmp_path, "a/one", "X", 0.5).write_bytes(content)
    with pytest.raises(ValueError, match=r"X\.json is not a result that mteb saved \(") as caught:
        read_saved(tmp_path)
    assert len(str(caught.value)) < 500 + len(str(tmp_path))


WITHOUT_TIME = json.dumps({key: value for key, value in WHOLE.items() if key != "evaluation_time"}).encode()


@pytest.mark.parametrize("content", [changed(evaluation_time=None), WITHOUT_TIME])
def test_only_times_need_the_time_of_a_result(tmp_path, content):
    write_result(tmp_path, "a/one", "X", 0.5).write_bytes(content)
    saved = read_saved(tmp_path)
    assert saved == [SavedScore("a/one", "X", 0.5, None)]
    with pytest.raises(ValueError, match="of a/one on X has no evaluation_time"):
        against_time(saved)


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("field", ["score", "time"])
def test_a_score_that_is_no_number_does_not_slip_into_a_mean(tmp_path, field, value):
    number = float(value)
    write_result(tmp_path, "a/one", "X", *((number, 1.0) if field == "score" else (0.5, number)))
    with pytest.raises(ValueError, match=f"expected a finite number, got {value}; run the task again"):
        read_saved(tmp_path)


def test_two_revisions_of_a_model_are_refused(tmp_path):
    path = write_result(tmp_path, "a/one", "X", 0.5)
    other = path.parent.parent / "2" / "X.json"
    other.parent.mkdir()
    other.write_bytes(path.read_bytes())
    with pytest.raises(ValueError, match="several revisions of a/one on X; keep one"):
        read_saved(tmp_path)


def test_a_folder_without_results_is_refused(tmp_path):
    (tmp_path / "results" / "a__one" / "1").mkdir(parents=True)
    (tmp_path / "results" / "a__one" / "1" / "model_meta.json").write_text("{}")
    with pytest.raises(ValueError, match="no results; give the output folder of `medteb run`"):
        read_saved(tmp_path)


def test_means_by_source_are_over_the_measured_tasks_of_english_medteb():
    saved = [
        SavedScore("a", WIKI[0], 0.2, 1.0),
        SavedScore("a", WIKI[1], 0.6, 1.0),
        SavedScore("a", "MedTEBSTS", 0.9, 1.0),
        SavedScore("b", WIKI[1], 0.5, 1.0),
        SavedScore("c", "MedTEBSTS", 0.9, 1.0),
    ]
    assert means_by_source(saved) == {
        "a": {"Wikipedia": SourceMean(pytest.approx(0.4), 2, 11)},
        "b": {"Wikipedia": SourceMean(0.5, 1, 11)},
    }


def test_time_and_score_are_means_over_the_common_tasks():
    saved = [
        SavedScore("a", "X", 0.2, 1.0),
        SavedScore("a", "Y", 0.4, 3.0),
        SavedScore("a", "Z", 1.0, 99.0),
        SavedScore("b", "Y", 0.8, 30.0),
        SavedScore("b", "X", 0.6, 10.0),
    ]
    assert against_time(saved) == {
        "a": TimedScore(2.0, pytest.approx(0.3), 2),
        "b": TimedScore(20.0, pytest.approx(0.7), 2),
    }


@pytest.mark.parametrize("saved", [[], [SavedScore("a", "X", 0.2, 1.0), SavedScore("b", "Y", 0.2, 1.0)]])
def test_without_a_common_task_there_is_nothing_to_compare(saved):
    with pytest.raises(ValueError, match="no task was measured with all models"):
        against_time(saved)
