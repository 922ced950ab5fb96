"""The folder of a stage: complete or not there, and independent of the copies made from it."""

from __future__ import annotations

import os
import shutil

import pytest

from mar_st.errors import MarError
from mar_st.model.opening import open_model
from mar_st.runs.stage_folder import (
    DONE_FILE,
    IDENTITY_FILE,
    is_finished,
    keep_model,
    link_weights,
    restore_marker,
)
from tests.mar_st.stages.helpers import encoder


@pytest.fixture
def kept(tmp_path):
    (tmp_path / "checkpoints/checkpoint-4").mkdir(parents=True)
    (tmp_path / "model.part").mkdir()  # of a run that was killed while it saved
    (tmp_path / "model.part/leftover").write_text("")
    keep_model(encoder(), tmp_path, {"digest": "abc", "stage": "init"})
    return tmp_path


def test_a_finished_stage_has_its_model_and_no_checkpoints(kept):
    assert sorted(path.name for path in kept.iterdir()) == [DONE_FILE, "model"]
    assert not (kept / "model/leftover").exists()
    assert open_model(kept / "model").encode(["头疼"]).tolist() == encoder().encode(["头疼"]).tolist()


def test_the_files_of_a_stage_do_not_depend_on_texts_that_were_encoded_before(kept, tmp_path):
    model = encoder()
    model.preprocess(["头疼怎么办"])  # as a training that was not interrupted before its last step
    keep_model(model, tmp_path / "other", {"digest": "abc", "stage": "init"})
    for path in (kept / "model").rglob("*"):
        if path.is_file():
            other = tmp_path / "other/model" / path.relative_to(kept / "model")
            assert other.read_bytes() == path.read_bytes(), path.name


@pytest.mark.parametrize("content", ["", '{"digest": "ab', "\0" * 9, "[]", "{}"])
def test_a_stage_with_a_damaged_marker_is_not_finished(tmp_path, content):
    (tmp_path / DONE_FILE).write_text(content)
    assert not is_finished(tmp_path, "abc")


@pytest.mark.parametrize("content", ["", '{"digest": "ab', "[]", '{"digest": 1}'])
def test_a_damaged_marker_beside_the_whole_model_is_written_again(kept, content):
    (kept / IDENTITY_FILE).write_text("abc")
    (kept / DONE_FILE).write_text(content)
    assert restore_marker(kept, {"digest": "abc", "stage": "init"})
    assert is_finished(kept, "abc")
    assert not restore_marker(kept, {"digest": "abc", "stage": "init"})


def test_a_damaged_marker_of_another_stage_is_not_written_again(kept):
    (kept / IDENTITY_FILE).write_text("abd")
    (kept / DONE_FILE).write_text("")
    assert not restore_marker(kept, {"digest": "abc", "stage": "init"})
    assert not is_finished(kept, "abc")


@pytest.mark.parametrize("lost", ["identity", "model"])
def test_a_damaged_marker_without_what_it_belongs_to_is_refused(kept, lost):
    (kept / IDENTITY_FILE).write_text("abc")
    (kept / DONE_FILE).write_text("")
    shutil.rmtree(kept / "model") if lost == "model" else (kept / IDENTITY_FILE).unlink()
    with pytest.raises(MarError, match=rf"done\.json is damaged, and .*{lost} is missing .* delete it"):
        restore_marker(kept, {"digest": "abc", "stage": "init"})


def test_a_folder_without_a_marker_gets_none(tmp_path):
    assert not restore_marker(tmp_path, {"digest": "abc", "stage": "init"})
    assert not (tmp_path / DONE_FILE).exists()


def test_a_stage_is_finished_under_its_own_digest_alone(kept, tmp_path):
    assert is_finished(kept, "abc")
    assert not is_finished(kept, "abd")
    assert not is_finished(tmp_path / "elsewhere", "abc")


def test_a_kill_before_the_marker_leaves_an_unfinished_stage_with_its_checkpoints(tmp_path, monkeypatch):
    def killed(*args, **kwargs):
        raise KeyboardInterrupt

    (tmp_path / "checkpoints/checkpoint-4").mkdir(parents=True)
    monkeypatch.setattr("mar_st.runs.stage_folder.write_text", killed)
    with pytest.raises(KeyboardInterrupt):
        keep_model(encoder(), tmp_path, {"digest": "abc", "stage": "init"})
    assert not is_finished(tmp_path, "abc")
    assert (tmp_path / "checkpoints/checkpoint-4").is_dir()


@pytest.mark.parametrize("links", [True, False])
def test_copies_share_weights_where_the_file_system_has_links(kept, tmp_path, monkeypatch, links):
    if not links:

        def refuse(source, target):
            raise OSError("no links here")

        monkeypatch.setattr(os, "link", refuse)
    copy = tmp_path / "copy"
    shutil.copytree(kept / "model", copy, copy_function=link_weights)
    for path in copy.rglob("*"):
        original = kept / "model" / path.relative_to(copy)
        if path.is_file():
            assert path.read_bytes() == original.read_bytes()
            assert path.samefile(original) == (links and path.suffix == ".safetensors")
