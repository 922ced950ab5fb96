"""Places that the steps of a build share, and the arguments and results of a step."""

from __future__ import annotations

import pytest

from medteb_mteb.curation.files.records import Text
from medteb_mteb.curation.files.step import TextsReport
from medteb_mteb.curation.pipeline.settings import PipelineSettings
from medteb_mteb.curation.pipeline.work import StepJob, StepView, Volume, Workspace, counts_of


@pytest.fixture
def space(tmp_path):
    """The places of a build with these settings."""

    def call(**settings):
        return Workspace(PipelineSettings(**settings), tmp_path / "files", tmp_path / "files" / "build")

    return call


@pytest.mark.parametrize("key", ["journal", "answers", "store"])
@pytest.mark.parametrize(
    ("given", "expected"), [("x/y", "files/x/y"), ("../y", "files/../y"), ("/y", "/y"), ("~/y", "home/y")]
)
def test_a_named_place_is_relative_to_the_pipeline_file(space, tmp_path, monkeypatch, key, given, expected):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MAR_STORE", str(tmp_path / "elsewhere"))
    assert getattr(space(**{key: given}), key) == tmp_path / expected


def test_without_a_name_vectors_are_kept_in_the_build_or_where_the_environment_says(
    space, tmp_path, monkeypatch
):
    monkeypatch.delenv("MAR_STORE", raising=False)
    places = space()
    assert (places.journal, places.answers) == (None, None)
    assert places.store == tmp_path / "files" / "build" / "teacher-store"
    monkeypatch.setenv("MAR_STORE", str(tmp_path / "elsewhere"))
    assert places.store == tmp_path / "elsewhere"


def test_a_job_reads_the_texts_of_an_input_by_id_in_their_order(space, tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text(
        '{"_id": "b", "text": "乙"}\n{"_id": "a", "title": "题", "text": "甲"}\n', encoding="utf-8"
    )
    settings = {"already_anonymous": True}
    job = StepJob(space(**settings), {"in": [str(path)]}, {}, tmp_path, False, False, print)
    assert job.texts("in") == {"b": Text("b", "乙"), "a": Text("a", "甲", "题")}
    assert list(job.texts("in")) == ["b", "a"]
    assert job.path("in") == str(path)
    assert job.pipeline.already_anonymous


def test_a_forecast_reads_only_the_volumes_that_are_asked_for(space, tmp_path):
    read = []

    def volumes(key):
        read.append(key)
        return [Volume(len(read))]

    view = StepView(space(out="x"), tmp_path, {"in": ["a"], "pools": ["b"]}, volumes, True, False)
    assert (view.path("pools"), view.pipeline.out, read) == ("b", "x", [])
    assert (view.volume("pools"), read) == (Volume(1), ["pools"])


def test_counts_of_texts_add_up(tmp_path):
    counts = counts_of(TextsReport(tmp_path, read=9, kept=6, dropped={"near-duplicate": 3}, resumed=4))
    assert counts == {"read": 9, "kept": 6, "dropped": {"near-duplicate": 3}}
