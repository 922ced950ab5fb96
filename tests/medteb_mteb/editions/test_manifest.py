from __future__ import annotations

import json
import subprocess
import sys

import pytest

from medteb_mteb.editions import (
    Edition,
    EditionError,
    list_editions,
    load_edition,
    packaged_root,
    verify,
    write_manifest,
)


def write(folder, **changes):
    fields = {"task": folder.name, "name": "e", "version": "1", "licence": "cc0-1.0", "counts": {"test": 2}}
    return write_manifest(folder, **{**fields, **changes})


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "Task"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text('{"_id": "1", "text": "一"}\n', encoding="utf-8")
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n", encoding="utf-8")
    (folder / "README.md").write_text("# card\n")
    return folder


def test_written_manifest_reads_back_as_the_same_edition(folder):
    written = write(folder, seed=3, description="说明")
    read = load_edition(folder)
    assert read == written
    assert read.digest == written.digest
    assert read.extra == {"seed": 3, "description": "说明"}
    assert sorted(read.files) == ["corpus.jsonl", "qrels/test.tsv"]
    assert not list(folder.glob("*.part"))
    verify(read)


def test_digest_follows_data_and_fields_but_not_the_card_or_the_place(folder, tmp_path):
    first = write(folder).digest
    (folder / "README.md").write_text("# better card\n")
    assert write(folder).digest == first
    folder.rename(tmp_path / "moved")
    moved = tmp_path / "moved"
    assert load_edition(moved).digest == first
    assert write(moved, task="Task", version="2").digest != first
    (moved / "corpus.jsonl").write_text('{"_id": "1", "text": "二"}\n', encoding="utf-8")
    assert write(moved, task="Task").digest != first


def test_digest_does_not_depend_on_how_the_manifest_is_laid_out(folder):
    edition = write(folder)
    manifest = folder / "manifest.json"
    content = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(dict(reversed(content.items()))))
    assert load_edition(folder).digest == edition.digest


def same_size_change(folder):
    data = (folder / "corpus.jsonl").read_bytes()
    (folder / "corpus.jsonl").write_bytes(data.replace(b"1", b"2"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (same_size_change, r"corpus\.jsonl has sha256"),
        (lambda f: (f / "corpus.jsonl").write_bytes(b"x"), r"corpus\.jsonl has 1 bytes"),
        (lambda f: (f / "qrels" / "test.tsv").unlink(), r"qrels/test\.tsv is in the manifest but missing"),
        (lambda f: (f / "extra.jsonl").write_text("{}"), r"extra\.jsonl is not in the manifest"),
    ],
)
def test_verify_names_the_file_at_fault(folder, change, message):
    edition = write(folder)
    change(folder)
    with pytest.raises(EditionError, match=message):
        verify(edition)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("schema_version", 2, "schema_version 2"),
        ("task", "", "'task'"),
        *[("task", name, "'task' must be the name of a folder") for name in ("..", "../x", "/x", "a\\b")],
        ("counts", {"test": -1}, "'counts'"),
        ("files", {}, "'files'"),
        ("files", {"../x": {"sha256": "0" * 64, "bytes": 1}}, "must stay inside"),
        ("files", {"/x": {"sha256": "0" * 64, "bytes": 1}}, "must stay inside"),
        ("files", {"x": {"sha256": "0" * 63, "bytes": 1}}, "64 hex digits"),
        ("files", {"x": {"sha256": "0" * 64}}, "'bytes'"),
    ],
)
def test_malformed_manifests_are_refused_by_field(folder, key, value, message):
    write(folder)
    manifest = folder / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {key: value}))
    with pytest.raises(EditionError, match=message):
        load_edition(folder)


def test_a_missing_manifest_and_invalid_json_are_refused(folder):
    with pytest.raises(EditionError, match=r"has no manifest\.json"):
        load_edition(folder)
    for content in (b"\xff", b"[" * 100_000, b'{"task": "\\ud800"}'):
        (folder / "manifest.json").write_bytes(content)
        with pytest.raises(EditionError, match="not valid UTF-8 JSON"):
            load_edition(folder)


def test_writing_refuses_reserved_fields_unwritable_values_and_empty_folders(folder, tmp_path):
    with pytest.raises(EditionError, match="reserved"):
        write(folder, files={})
    with pytest.raises(EditionError, match="cannot be written as JSON"):
        write(folder, seed=float("nan"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(EditionError, match="no data files"):
        write(tmp_path / "empty")
    assert not (folder / "manifest.json").exists()


def test_every_packaged_edition_is_whole():
    for edition in list_editions():
        assert isinstance(edition, Edition)
        assert edition.path.parent == packaged_root()
        verify(edition)


def test_import_is_cheap():
    code = (
        "import sys, medteb_mteb.editions, medteb_mteb.folders;"
        "assert not {'mteb', 'torch', 'datasets', 'pyarrow'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_name_that_leaves_the_folder_is_refused(folder, tmp_path):
    write(folder)
    (tmp_path / "ESCAPED").write_text("x")
    content = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    content["files"]["x/../../../ESCAPED"] = {"sha256": "0" * 64, "bytes": 1}
    (folder / "manifest.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(EditionError, match="must stay inside the edition's folder"):
        load_edition(folder)


def test_a_file_behind_a_link_is_not_read_and_a_planted_link_is_not_written_through(folder, tmp_path):
    (tmp_path / "precious").write_text("x")
    (folder / "manifest.json.part").symlink_to(tmp_path / "precious")
    write(folder)
    assert (tmp_path / "precious").read_text() == "x"
    (folder / "corpus.jsonl").rename(tmp_path / "secret.jsonl")
    (folder / "corpus.jsonl").symlink_to(tmp_path / "secret.jsonl")
    with pytest.raises(EditionError, match=r"corpus\.jsonl is a symbolic link out of"):
        verify(load_edition(folder))


def test_links_to_the_blobs_of_the_hubs_cache_are_read(folder, tmp_path):
    edition = write(folder)
    snapshot, blobs = tmp_path / "datasets--a--b" / "snapshots" / "abc", tmp_path / "datasets--a--b" / "blobs"
    for relative in (*edition.files, "manifest.json"):
        target = snapshot / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        blobs.mkdir(exist_ok=True)
        (folder / relative).rename(blobs / target.name)
        target.symlink_to(blobs / target.name)
    verify(load_edition(snapshot))
