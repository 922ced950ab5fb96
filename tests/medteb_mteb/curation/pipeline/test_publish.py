"""The folder of all editions and training sets follows the steps that write them."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.pipeline.publish import publish, published, withdraw


@pytest.fixture
def step(edition, tmp_path):
    """Writes the folder of a step: an edition of a task, and training data."""

    def call(name, task="MedTEBSTS", train="sts.jsonl", **fields):
        folder = tmp_path / name
        edition(folder, task, **fields)
        (folder / "train").mkdir()
        (folder / "train" / train).write_text(f'{{"by": "{name}"}}\n')
        (folder / "log").mkdir()
        (folder / "log" / "rewrites.jsonl").write_text("{}\n")
        (folder / "step.json").write_text("{}\n")
        return folder

    return call


@pytest.fixture
def data(tmp_path):
    return tmp_path / "build" / "data"


def contents(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def output(folder):
    """Editions and training data of a step, without what it keeps for itself."""
    return {name: content for name, content in contents(folder).items() if name.partition("/")[0] in
            ("MedTEBRetrieval", "MedTEBSTS", "train")}  # fmt: skip


def test_editions_and_training_data_are_linked_and_nothing_else(step, data):
    folder = step("sts")
    assert not published(folder, data)
    publish(folder, data)
    assert contents(data) == output(folder)
    assert all((data / name).samefile(folder / name) for name in contents(data))
    assert published(folder, data)


def test_several_steps_share_the_folder(step, data):
    sts, assemble = step("sts"), step("assemble", "MedTEBRetrieval", "triples.jsonl")
    publish(sts, data)
    publish(assemble, data)
    assert contents(data) == output(sts) | output(assemble)
    assert published(sts, data)
    assert withdraw(assemble, data)
    assert contents(data) == output(sts)


def test_an_edition_is_replaced_as_a_whole(step, data):
    first, second = step("first"), step("second", version="2.0.0")
    publish(first, data)
    (data / "MedTEBSTS" / "stale.txt").write_text("x")
    publish(second, data)
    assert contents(data) == output(second)
    assert not published(first, data)
    assert json.loads((first / "MedTEBSTS" / "manifest.json").read_text())["version"] == "0.0.1"


@pytest.mark.parametrize("name", ["MedTEBSTS/test.jsonl", "MedTEBSTS/manifest.json", "train/sts.jsonl"])
def test_a_missing_file_is_noticed_and_published_again(step, data, name):
    folder = step("sts")
    publish(folder, data)
    (data / name).unlink()
    assert not published(folder, data)
    publish(folder, data)
    assert contents(data) == output(folder)


def test_what_a_killed_run_left_is_replaced_and_withdrawn(step, data):
    folder = step("sts")
    (data / ".MedTEBSTS.part").mkdir(parents=True)
    (data / ".MedTEBSTS.part" / "stale.txt").write_text("x")
    publish(folder, data)
    assert contents(data) == output(folder)
    (data / "MedTEBSTS" / "manifest.json").unlink()
    assert withdraw(folder, data)
    assert not (data / "MedTEBSTS").exists()


def test_only_what_no_other_step_replaced_is_withdrawn(step, data, tmp_path):
    first, second = step("first"), step("second", version="2.0.0")
    publish(first, data)
    publish(second, data)
    assert not withdraw(first, data)
    assert not withdraw(tmp_path / "never-made", data)
    assert contents(data) == output(second)
    assert withdraw(second, data)
    assert contents(data) == {}


def test_without_links_files_are_copied(step, data, monkeypatch):
    def refuse(*args, **options):
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    folder = step("sts")
    publish(folder, data)
    assert published(folder, data)
    before = contents(data)
    shutil.rmtree(folder)
    assert contents(data) == before


def test_a_folder_that_cannot_be_written_is_named(step, data):
    folder = step("sts")
    data.parent.mkdir()
    data.write_text("a file")
    with pytest.raises(BuildError, match=r"data/MedTEBSTS cannot be written \(.*\)\. Fix this and repeat it"):
        publish(folder, data)
