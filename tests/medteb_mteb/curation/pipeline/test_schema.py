"""Pipeline files: files beside them, paths in them, and settings that no file could hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.pipeline.schema import beside, load_pipeline

DEDUP = "{step: dedup, in: documents.jsonl}"
JUDGE = "{name: a, model: m, base_url: 'http://127.0.0.1:9/v1'}"
WRITER = "{name: w, model: m, base_url: 'http://127.0.0.1:9/v1'}"


@pytest.fixture
def load(tmp_path):
    """Loads a pipeline file of this text."""

    def call(text):
        path = tmp_path / "pipeline.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_pipeline(path)

    return call


def test_judges_are_a_list_a_mapping_or_the_name_of_a_file_beside(load, tmp_path):
    (tmp_path / "judges.yaml").write_text(f"judges: [{JUDGE}]")
    forms = [f"[{JUDGE}]", f"{{judges: [{JUDGE}]}}", "judges.yaml", str(tmp_path / "judges.yaml")]
    read = [load(f"judges: {form}\nsteps: [{DEDUP}]").judges for form in forms]
    assert [judges.judges[0].name for judges in read] == ["a"] * 4
    assert len(set(map(repr, read))) == 1


def test_an_llm_of_all_steps_or_of_one_may_be_in_a_file_beside(load, tmp_path):
    (tmp_path / "w.yaml").write_text(f"llm: {WRITER}")
    step = "{step: synthesize-tasks, llm: %s}"
    in_file = load(f"llm: w.yaml\nsteps: [{step % 'w.yaml'}]")
    written_out = load(f"llm: {WRITER}\nsteps: [{step % WRITER}]")
    assert in_file == written_out
    assert in_file.llm.name == in_file.steps[0].llm.name == "w"


def test_a_step_without_a_name_is_called_after_its_kind(load):
    steps = load(f"steps: [{DEDUP}, {{step: dedup, name: 二, in: dedup}}]").steps
    assert [step.name for step in steps] == ["dedup", "二"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a/b", "base/a/b"),
        ("/a", "/a"),
        ("~/a", "home/a"),
        ("a~b", "base/a~b"),
        ("", "base"),
        ("..", "base/.."),
    ],
)
def test_paths_are_relative_to_the_folder_of_the_file(path, expected, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert beside(tmp_path / "base", path) == tmp_path / Path(expected)


@pytest.mark.parametrize("path", ["~no-such-user/a", '"a\\0b"'])
@pytest.mark.parametrize("key", ["judges", "llm"])
def test_what_cannot_be_a_path_is_refused(load, key, path):
    with pytest.raises(BuildError, match=r"is not a path .* Give another one"):
        load(f"{key}: {path}\nsteps: [{DEDUP}]")


@pytest.mark.parametrize(
    "text",
    [
        f'out: "\\ud800"\nsteps: [{DEDUP}]',
        'steps: [{step: dedup, in: "\\udfff"}]',
        'steps: [{step: dedup, in: a.jsonl, columns: {text: "\\ud800"}}]',
        'steps: [{step: dedup, in: a.jsonl, columns: {"text": "\\ude00\\ud83d"}}]',
    ],
)
def test_half_of_a_surrogate_pair_is_refused(load, text):
    with pytest.raises(BuildError, match=r"'.ud[8ef].*' holds half of a surrogate pair"):
        load(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"\xff", "is not valid YAML"),
        (b"steps: [", "is not valid YAML"),
        ("", "must be a mapping with 'steps', a list"),
        ("steps: &all [*all]", "steps.0: "),
        (f"1: 2\nsteps: [{DEDUP}]", "1: Keys should be strings"),
        (f"judges: 3\nsteps: [{DEDUP}]", "judges: "),
        ("steps: [{step: dedup, in: a, name: teacher-store}]", "'teacher-store' is a folder of the build"),
        ("steps: [{step: dedup, in: a, name: DATA}]", "'data' is a folder of the build"),
    ],
)
def test_a_file_of_another_form_is_refused_in_one_line(load, text, message):
    with pytest.raises(BuildError, match=message) as caught:
        load(text)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "one").symlink_to("other")
    (tmp_path / "other").symlink_to("one")
    for name in ("gone", "one", "gone/pipeline.yaml", "x" * 300, "."):
        with pytest.raises(BuildError, match=r"cannot be read \("):
            load_pipeline(tmp_path / name)
