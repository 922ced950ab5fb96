"""The active edition of a task: a user's folder, or the packaged one."""

from __future__ import annotations

import pytest

from medteb_mteb.editions import EditionError, find_edition, list_editions, write_manifest
from medteb_mteb.editions.find import packaged_root


@pytest.fixture
def roots(tmp_path, monkeypatch):
    """A packaged root with task A, and a user root with tasks A and B."""
    for root, tasks in (("packaged", "A"), ("user", "AB")):
        for task in tasks:
            folder = tmp_path / root / task
            folder.mkdir(parents=True)
            (folder / "test.jsonl").write_text(f"{root} {task}")
            fields = {"version": "1", "licence": "cc0-1.0", "counts": {"test": 2}}
            write_manifest(folder, task=task, name=root, **fields)
    monkeypatch.setattr("medteb_mteb.editions.find.packaged_root", lambda: tmp_path / "packaged")
    return tmp_path


def test_user_editions_come_before_packaged_ones(roots, monkeypatch):
    assert find_edition("A").name == "packaged"
    assert [e.task for e in list_editions()] == ["A"]
    monkeypatch.setenv("MEDTEB_DATA", str(roots / "user"))
    assert find_edition("A").name == "user"
    assert [(e.task, e.name) for e in list_editions()] == [("A", "user"), ("B", "user")]


def test_a_packaged_edition_stays_active_beside_a_users_of_another_task(roots, monkeypatch):
    (roots / "mine").mkdir()
    (roots / "user" / "B").rename(roots / "mine" / "B")
    monkeypatch.setenv("MEDTEB_DATA", str(roots / "mine"))
    assert [(e.task, e.name) for e in list_editions()] == [("A", "packaged"), ("B", "user")]


def test_a_user_folder_without_manifest_is_refused_not_skipped(roots, monkeypatch):
    (roots / "user" / "A" / "manifest.json").unlink()
    monkeypatch.setenv("MEDTEB_DATA", str(roots / "user"))
    with pytest.raises(EditionError, match=r"has no manifest\.json"):
        find_edition("A")


def test_a_folder_of_another_name_than_its_task_is_refused(roots, monkeypatch):
    monkeypatch.setenv("MEDTEB_DATA", str(roots / "user"))
    (roots / "user" / "B").rename(roots / "user" / "C")
    for ask in (list_editions, lambda: find_edition("C")):
        with pytest.raises(EditionError, match="is of task 'B', but the folder is named 'C'"):
            ask()


@pytest.mark.parametrize("task", ["a", "", ".", "..", "x" * 300, "a\0b", "\ud800"])
def test_an_unknown_task_is_named_with_those_there_are(roots, task):
    with pytest.raises(EditionError, match=r"No edition of task .* Known: A\. Set MEDTEB_DATA"):
        find_edition(task)


@pytest.mark.parametrize("task", ["", ".", "..", "../packaged/A", "x" * 300, "a\0b"])
def test_a_name_that_leads_elsewhere_is_no_task_of_the_user(roots, monkeypatch, task):
    monkeypatch.setenv("MEDTEB_DATA", str(roots / "user"))
    with pytest.raises(EditionError):
        find_edition(task)


def test_a_task_that_is_nearly_written_right_is_suggested():
    with pytest.raises(EditionError, match="Did you mean 'MedTEBRetrieval'"):
        find_edition("MedTEBretrieval")
    assert find_edition("MedTEBRetrieval").path == packaged_root() / "MedTEBRetrieval"


@pytest.mark.parametrize("root", ["nowhere", "user/A/test.jsonl", "~no-such-user/data", "x" * 300])
def test_a_root_that_is_no_folder_is_refused(roots, monkeypatch, root):
    monkeypatch.chdir(roots)
    monkeypatch.setenv("MEDTEB_DATA", root)
    for ask in (list_editions, lambda: find_edition("A")):
        with pytest.raises(EditionError, match=r"MEDTEB_DATA=.* is not a folder\. Point it at"):
            ask()
