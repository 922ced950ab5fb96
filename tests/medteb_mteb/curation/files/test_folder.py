"""The folder of a step: it belongs to one step and one process, and damaged files are one clear error."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from medteb_mteb.curation.files.folder import (
    alone,
    claim,
    lineage,
    read_json,
    refuse_within,
    write_json,
    write_text,
)
from medteb_mteb.curation.files.records import BuildError

STEP = {"schema_version": 1, "step": "dedup", "settings": {"threshold": 0.9}, "shard": 8}


def test_a_folder_is_created_locked_and_released(tmp_path):
    folder = tmp_path / "a" / "b"
    with alone(folder), pytest.raises(BuildError, match="Another process is writing"), alone(folder):
        pass
    with pytest.raises(KeyError), alone(folder):
        raise KeyError
    with alone(folder):
        assert folder.is_dir()


@pytest.mark.parametrize("obstacle", ["file", "lock"])
def test_a_folder_that_cannot_be_locked_is_one_clear_error(tmp_path, obstacle):
    folder = tmp_path / "out"
    if obstacle == "file":
        folder.write_text("x")
    else:
        (folder / ".lock").mkdir(parents=True)
    with pytest.raises(BuildError, match=r"out cannot be written to \("), alone(folder):
        pass


def test_a_claimed_folder_belongs_to_its_step(tmp_path):
    claim(tmp_path, STEP)
    (tmp_path / "records-00000.jsonl").write_text("")
    claim(tmp_path, STEP)
    with pytest.raises(BuildError, match="holds a step dedup with other settings, shard size"):
        claim(tmp_path, STEP | {"settings": {"threshold": 0.8}, "shard": 9})
    with pytest.raises(BuildError, match="other sources"):
        claim(tmp_path, STEP | {"sources": []})
    with pytest.raises(BuildError, match="other shard size"):
        claim(tmp_path, {name: value for name, value in STEP.items() if name != "shard"})
    assert read_json(tmp_path / "step.json") == STEP


def test_a_folder_of_other_files_is_not_claimed_but_hidden_files_may_be_there(tmp_path):
    (tmp_path / ".DS_Store").touch()
    (tmp_path / "notes.txt").touch()
    with pytest.raises(BuildError, match=r"is not empty \(notes\.txt\); give a new folder"):
        claim(tmp_path, STEP)
    (tmp_path / "notes.txt").unlink()
    claim(tmp_path, STEP)


DAMAGED = [
    pytest.param(b"", id="empty"),
    pytest.param(b'{"step": "ded', id="half"),
    pytest.param(b"[]", id="list"),
    pytest.param(b"null", id="null"),
    pytest.param(b'{"step": "\xff"}', id="encoding"),
    pytest.param(b'{"step": "\\ud800"}', id="surrogate"),
    pytest.param(b'{"step": ' + b"[" * 100_000, id="deep"),
    pytest.param(b'{"shard": ' + b"9" * 5_000 + b"}", id="digits"),
]


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_record_is_one_clear_error(tmp_path, content):
    (tmp_path / "step.json").write_bytes(content)
    (tmp_path / "manifest.json").write_bytes(content)
    for call in (lambda: claim(tmp_path, STEP), lambda: lineage(tmp_path)):
        with pytest.raises(BuildError, match=r"\.json is damaged \(.*\)\. Restore it, or make its folder ag"):
            call()


def test_the_lineage_of_a_folder_ends_with_its_own_step(tmp_path):
    write_json(tmp_path / "step.json", STEP)
    assert lineage(tmp_path) == []  # not finished
    first = {"step": "anonymize", "manifest": "0" * 64}
    write_json(tmp_path / "manifest.json", {**STEP, "kept": 3, "files": {"a": "b"}, "before": [first]})
    digest = hashlib.sha256((tmp_path / "manifest.json").read_bytes()).hexdigest()
    own = {"step": "dedup", "settings": {"threshold": 0.9}, "kept": 3, "manifest": digest}
    assert lineage(tmp_path) == [first, own]
    write_json(tmp_path / "manifest.json", {"step": "judge", "before": {"pools": []}})
    assert lineage(tmp_path)[0] == {"pools": []}
    write_json(tmp_path / "manifest.json", {"step": "judge", "before": [first, None]})
    with pytest.raises(BuildError, match=r"manifest\.json is damaged \(expected objects under 'before'"):
        lineage(tmp_path)
    assert lineage("hub:org/name") == []


def test_a_text_that_cannot_be_written_leaves_the_file_as_it_was(tmp_path):
    path = tmp_path / "labels.jsonl"
    write_text(path, "第一行\n")
    with pytest.raises(BuildError, match=r"line 2 would hold half of a surrogate pair \('\\ud83d'\)"):
        write_text(path, "甲\n乙\ud83d\n")
    assert path.read_text(encoding="utf-8") == "第一行\n"
    assert [file.name for file in tmp_path.iterdir()] == ["labels.jsonl"]
    with pytest.raises(BuildError, match=r"gone.a\.txt cannot be written \(No such file"):
        write_text(tmp_path / "gone" / "a.txt", "x")


def test_json_is_written_readable_and_private_files_are_private(tmp_path):
    write_json(tmp_path / "a.json", {"名": [1]})
    assert (tmp_path / "a.json").read_text(encoding="utf-8") == '{\n  "名": [\n    1\n  ]\n}\n'
    assert json.loads((tmp_path / "a.json").read_bytes()) == {"名": [1]}
    write_text(tmp_path / "salt", "x", private=True)
    assert (tmp_path / "salt").stat().st_mode & 0o077 == 0


def test_a_folder_of_data_and_folders_in_it_are_not_written_to(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = Path("data")
    for out in (tmp_path / "data", data / "out", Path("data/../data")):
        with pytest.raises(BuildError, match="is part of the input data; give another folder"):
            refuse_within(out, data)
    for out in (tmp_path, Path("data-2"), data / ".." / "out"):
        refuse_within(out, data)
