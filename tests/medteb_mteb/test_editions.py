"""Editions: identity by digest, verification of files, and which one is in force."""

from __future__ import annotations

import json

import pytest

from mar_st.errors import MarError
from medteb_mteb.editions import (
    data_files,
    find_edition,
    load_edition,
    read_provenance,
    verify,
    write_manifest,
)

FIELDS = {"name": "own", "version": "1", "licence": "mit", "counts": {"test": 1}}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "Clinic" / "qrels").mkdir(parents=True)
    (tmp_path / "Clinic" / "corpus.jsonl").write_text("{}\n")
    (tmp_path / "Clinic" / "qrels" / "test.tsv").write_text("query-id\n")
    (tmp_path / "Clinic" / "README.md").write_text("card")
    return tmp_path / "Clinic"


def write(folder, **fields):
    return write_manifest(folder, task="Clinic", **{**FIELDS, **fields})


def test_a_written_edition_is_the_one_that_is_read(folder):
    written = write(folder, seed=3, description="说明")
    read = load_edition(folder)
    assert read == written
    assert read.extra == {"seed": 3, "description": "说明"}
    assert list(read.files) == ["corpus.jsonl", "qrels/test.tsv"]
    verify(read)


def test_the_digest_follows_data_and_declarations_and_nothing_else(folder):
    first = write(folder).digest
    (folder / "README.md").write_text("corrected")
    (folder / "provenance.json").write_text("{}")
    (folder / ".hidden").write_text("x")
    assert write(folder).digest == first
    assert write(folder, version="2").digest != first
    (folder / "corpus.jsonl").write_text('{"a": 1}\n')
    assert write(folder).digest != first


@pytest.mark.parametrize("change", ["altered", "missing", "added"])
def test_verify_names_the_file_at_fault(folder, change):
    edition = write(folder)
    if change == "altered":
        (folder / "corpus.jsonl").write_text("[]\n")  # as many bytes
    elif change == "missing":
        (folder / "corpus.jsonl").unlink()
    else:
        (folder / "corpus2.jsonl").write_text("")
    with pytest.raises(MarError, match=r"corpus2?\.jsonl"):
        verify(edition)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("schema_version", 2),
        ("task", ""),
        ("task", ".."),
        ("task", "a/b"),
        ("licence", " "),
        ("counts", {"test": -1}),
        ("counts", {"test": True}),
        ("files", {}),
        ("files", {"a": {"sha256": "0" * 64, "bytes": "3"}}),
        ("files", {"a": {"sha256": "x" * 64, "bytes": 3}}),
    ],
)
def test_malformed_manifests_are_refused_by_field(folder, field, value):
    write(folder)
    content = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**content, field: value}))
    with pytest.raises(MarError, match=field):
        load_edition(folder)


@pytest.mark.parametrize("name", ["../corpus.jsonl", "/etc/passwd", "qrels/../../x", "link"])
def test_a_name_that_leaves_the_folder_is_refused(folder, name):
    write(folder)
    (folder.parent / "outside").write_text("x")
    (folder / "link").symlink_to(folder.parent / "outside")
    content = json.loads((folder / "manifest.json").read_text())
    content["files"][name] = {"sha256": "0" * 64, "bytes": 1}
    (folder / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(MarError, match=r"manifest.json names"):
        load_edition(folder)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"task": "\\ud800"}'])
def test_a_manifest_that_is_no_json_object_is_refused(folder, text):
    (folder / "manifest.json").write_text(text)
    with pytest.raises(MarError, match=r"manifest.json"):
        load_edition(folder)


def test_an_empty_folder_and_values_that_json_cannot_hold_are_refused(tmp_path, folder):
    (tmp_path / "empty").mkdir()
    with pytest.raises(MarError, match="files"):
        write(tmp_path / "empty")
    with pytest.raises(MarError, match="cannot be written as JSON"):
        write(folder, seed=float("nan"))


def test_links_into_the_cache_of_the_hub_are_data(tmp_path):
    snapshot, blobs = tmp_path / "datasets--a--b" / "snapshots" / "abc", tmp_path / "datasets--a--b" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    (blobs / "0123").write_text("{}\n")
    (snapshot / "corpus.jsonl").symlink_to("../../blobs/0123")
    verify(write(snapshot))
    assert [name for name, _ in data_files(snapshot)] == ["corpus.jsonl"]


def test_a_users_edition_comes_before_the_packaged_one(folder, monkeypatch):
    monkeypatch.delenv("MEDTEB_DATA", raising=False)
    packaged = {task: find_edition(task).digest for task in ("MedTEBRetrieval", "MedTEBSTS")}
    monkeypatch.setenv("MEDTEB_DATA", str(folder.parent))
    own = write(folder)
    assert find_edition("Clinic").digest == own.digest
    folder.rename(folder.with_name("MedTEBSTS"))
    with pytest.raises(MarError, match="is of task 'Clinic', not 'MedTEBSTS'"):
        find_edition("MedTEBSTS")
    replaced = write_manifest(folder.with_name("MedTEBSTS"), task="MedTEBSTS", **FIELDS)
    assert find_edition("MedTEBSTS").digest == replaced.digest != own.digest
    assert find_edition("MedTEBRetrieval").digest == packaged["MedTEBRetrieval"]


def test_unknown_tasks_and_roots_are_named(tmp_path, monkeypatch):
    with pytest.raises(MarError, match="Did you mean 'MedTEBSTS'"):
        find_edition("MedTEBST")
    with pytest.raises(MarError, match="No edition"):
        find_edition("x" * 300)
    for root in (tmp_path / "absent", "~no-such-user/data"):
        monkeypatch.setenv("MEDTEB_DATA", str(root))
        with pytest.raises(MarError, match="is not a folder"):
            find_edition("MedTEBSTS")


def test_provenance_is_read_and_dates_are_those_of_the_answers(folder):
    assert read_provenance(folder) == {}
    (folder / "provenance.json").write_text(json.dumps({"judges": [{"name": "a"}]}))
    assert read_provenance(folder)["judges"] == [{"name": "a"}]
    (folder / "provenance.json").write_text("[]")
    with pytest.raises(MarError, match=r"provenance.json"):
        read_provenance(folder)
