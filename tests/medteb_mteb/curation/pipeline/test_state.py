"""The state of a build: its records on disk, and the digests by which changes are noticed."""

from __future__ import annotations

import json
import os

import pytest

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.pipeline.registry import registered
from medteb_mteb.curation.pipeline.settings import PipelineSettings
from medteb_mteb.curation.pipeline.state import State, StepRecord, content_digest, fingerprint

RECORD = StepRecord("dedup", "f" * 64, True, "d" * 64, {"kept": 3, "甲": None}, 1.5)


def test_records_are_read_back_as_they_were_put(tmp_path):
    assert State(tmp_path).records == {}
    state = State(tmp_path)
    state.put("one", RECORD)
    state.put("two", StepRecord("pool", "a"))
    assert State(tmp_path).records == {"one": RECORD, "two": StepRecord("pool", "a")}
    state.forget("one")
    state.forget("none")
    assert State(tmp_path).records == {"two": StepRecord("pool", "a")}


ROW = {"step": "dedup", "fingerprint": "f"}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "[" * 100_000,
        "{}",
        {"schema_version": 1},
        {"schema_version": 1, "steps": []},
        {"schema_version": 1, "steps": {"a": []}},
        {"schema_version": 1, "steps": {"a": {"step": "dedup"}}},
        {"schema_version": 1, "steps": {"a": {**ROW, "more": 1}}},
        {"schema_version": 1, "steps": {"a": {**ROW, "step": 1}}},
        {"schema_version": 1, "steps": {"a": {**ROW, "finished": "false"}}},
        {"schema_version": 1, "steps": {"a": {**ROW, "digest": None}}},
        {"schema_version": 1, "steps": {"a": {**ROW, "result": []}}},
        {"schema_version": 1, "steps": {"a": {**ROW, "seconds": "1"}}},
    ],
)
def test_a_damaged_file_is_refused_and_kept(tmp_path, content):
    text = content if isinstance(content, str) else json.dumps(content)
    (tmp_path / "build.json").write_text(text)
    with pytest.raises(BuildError, match=r"build\.json is damaged\. Put it back as it was"):
        State(tmp_path)
    assert (tmp_path / "build.json").read_text() == text


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_a_file_of_another_version_is_refused(tmp_path, version):
    (tmp_path / "build.json").write_text(json.dumps({"schema_version": version}))
    with pytest.raises(BuildError, match=r"build\.json is of another version of medteb"):
        State(tmp_path)


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "input"
    (folder / "inner").mkdir(parents=True)
    (folder / "a.jsonl").write_text('{"_id": "a", "text": "甲"}\n', encoding="utf-8")
    (folder / "inner" / "b.tsv").write_text("x\n")
    return folder


def test_a_digest_of_a_folder_follows_names_and_contents_and_not_its_place(folder, tmp_path):
    digests = [content_digest(folder)]
    (folder / "inner" / "b.tsv").rename(folder / "inner" / "c.tsv")
    digests.append(content_digest(folder))
    (folder / "inner" / "c.tsv").write_text("y\n")
    digests.append(content_digest(folder))
    (folder / "inner" / "empty").touch()
    digests.append(content_digest(folder))
    assert len(set(digests)) == 4
    folder.rename(tmp_path / "moved")
    assert content_digest(tmp_path / "moved") == digests[-1]


@pytest.mark.parametrize("name", [".lock", ".hidden/file", "provenance.json", "inner/croissant.json"])
def test_hidden_files_and_records_of_when_it_was_made_are_left_out(folder, name):
    before = content_digest(folder)
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("today")
    assert content_digest(folder) == before


def test_of_a_folder_with_a_manifest_only_that_counts(folder):
    (folder / "manifest.json").write_text("{}")
    before = content_digest(folder)
    (folder / "a.jsonl").write_text("changed")
    assert content_digest(folder) == before
    assert content_digest(folder) == content_digest(folder / "manifest.json")
    assert content_digest(folder, texts=True) != before


def test_a_file_whose_name_is_not_utf8_has_a_digest(folder):
    before = content_digest(folder)
    (folder / os.fsdecode(b"\xff.tsv")).write_text("y")
    assert content_digest(folder) != before


@pytest.mark.parametrize("name", ["gone", "a.jsonl/x", "x" * 300, "a\0b"])
@pytest.mark.parametrize("texts", [True, False])
def test_a_source_that_is_not_there_has_no_digest(folder, name, texts):
    with pytest.raises(BuildError):
        content_digest(folder / name, texts=texts)


def test_a_fingerprint_follows_what_the_output_depends_on_and_nothing_else():
    step, settings = registered()["dedup"], PipelineSettings()

    def of(inputs=("1",), models=None, pipeline=settings, **fields):
        one = step.model_validate({"step": "dedup", "in": "a.jsonl", **fields})
        return fingerprint(one, {"in": list(inputs)}, models or {}, pipeline)

    base = of()
    assert base == of(name="other") == of(**{"in": "b.jsonl"}) == of(pipeline=PipelineSettings(out="x"))
    assert len({base, of(threshold=0.7), of(["2"]), of(["1", "1"]), of(models={"m": "1"})}) == 5
