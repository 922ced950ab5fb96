"""Pipeline files: wrong shapes give one-line errors, paths are relative to the file's folder."""

from __future__ import annotations

import pytest

from medteb_mteb.curation import pipeline as building
from medteb_mteb.curation.files.records import BuildError


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ("{step: dedup, in: documents.jsonl}", "steps: must be a list"),
        ("", "steps: must be a list"),
        ("[null]", "steps.0: "),
        ("[{step: [dedup], in: documents.jsonl}]", "is not a step; choose from "),
        ("[{step: dedup, name: 0, in: documents.jsonl}]", "steps.0.dedup.name: "),
        ("[{step: dedup, name: data, in: documents.jsonl}]", "'data' is a folder of the build"),
        ("[{step: dedup, name: a/b, in: documents.jsonl}]", "steps.0.dedup.name: "),
        (
            "[{step: dedup, name: A, in: documents.jsonl}, {step: dedup, name: a, in: A}]",
            "two steps are called 'A'",
        ),
        ("[{step: dedup, in: ''}]", "there is no step ''"),
        (f"[{{step: dedup, in: {'x' * 300}}}]", "there is no step 'xxx"),
        ("[{step: dedup, in: documents.jsonl, columns: {text: 2024-13-45}}]", "month must be in 1..12"),
        ("[{step: consensus, in: 'hub:org/name'}]", "cannot be read from the Hub"),
        (
            "[{step: pool, queries: queries.jsonl, documents: documents.jsonl, retrievers: ['bm25:words']}]",
            "'bm25:words' is not a Hub name",
        ),
        ("[{step: diversify, in: documents.jsonl, kind: documents, model: bm25}]", "not a Hub name"),
        ("[{step: pairs, queries: [queries.jsonl], shares: {queries.jsonl: 2}}]", "a share is above 0"),
    ],
)
def test_steps_of_a_wrong_shape_are_one_line_errors(medteb, texts, tmp_path, steps, message):
    path = tmp_path / "pipeline.yaml"
    path.write_text(f"steps: {steps}\n", encoding="utf-8")
    for args in ((), ("--dry-run",)):
        code, _, err = medteb("build", path, *args)
        assert code == 2
        assert message in err
        assert not (tmp_path / "build").exists()


def test_settings_may_be_shared(texts, tmp_path):
    path = tmp_path / "pipeline.yaml"
    path.write_text(
        "steps:\n"
        "- &one {step: dedup, name: 甲, in: documents.jsonl, threshold: 0.7}\n"
        "- &two {<<: *one, name: 乙, in: 甲}\n"
        "- {<<: [*two, *one], name: 丙}\n",
        encoding="utf-8",
    )
    report = building.build(path, show_progress=False, say=lambda line: None)
    assert [step.name for step in report.steps] == ["甲", "乙", "丙"]
    assert building.load_pipeline(path).steps[2].threshold == 0.7


def test_paths_are_relative_to_the_folder_of_the_file(write, texts, tmp_path, monkeypatch):
    (tmp_path / "judges.yaml").write_text(
        "judges: [{name: a, model: m, base_url: 'http://127.0.0.1:9/v1'}]", encoding="utf-8"
    )
    steps = [{"step": "dedup", "in": "documents.jsonl"}]
    path = write(steps=steps, judges="judges.yaml")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    link = elsewhere / "link.yaml"
    link.symlink_to(path)
    for given in (link, "../pipeline.yaml"):
        opened = building.Build.open(given)
        assert opened.root == tmp_path / "build"
        assert [judge.name for judge in opened.pipeline.judges.judges] == ["a"]


def test_a_tilde_is_the_home_folder(write, texts, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    path = write(steps=[{"step": "dedup", "in": "documents.jsonl"}], out="~/mine")
    building.build(path, show_progress=False, say=lambda line: None)
    assert (tmp_path / "home" / "mine" / "build.json").is_file()
    assert not (tmp_path / "~").exists()


def test_private_texts_are_refused_before_the_first_step(write, quiet, tmp_path):
    raw = [
        {"step": "pool", "queries": "queries.jsonl", "documents": "documents.jsonl", "retrievers": ["bm25"]},
        {"step": "judge", "queries": "queries.jsonl", "documents": "documents.jsonl", "pools": "pool"},
    ]
    with pytest.raises(BuildError, match=r"Step 'judge' sends queries of .*queries\.jsonl to an LLM"):
        quiet(write(steps=raw))
    clean = {"step": "anonymize", "name": "clean", "in": "queries.jsonl"}
    dedup = {"step": "dedup", "name": "few", "in": "clean"}
    half = [clean, dedup, raw[0], {**raw[1], "queries": "few"}]
    with pytest.raises(BuildError, match=r"Step 'judge' sends documents of .*documents\.jsonl to an LLM"):
        quiet(write(steps=half))
    assert not list((tmp_path / "build").glob("pool"))


def test_a_missing_key_is_reported_before_the_first_step(write, quiet, monkeypatch, tmp_path):
    monkeypatch.delenv("CLINIC_KEY", raising=False)
    steps = [
        {"step": "anonymize", "name": "queries", "in": "queries.jsonl"},
        {"step": "synthesize-tasks", "name": "tasks"},
    ]
    llm = {"name": "w", "model": "m", "base_url": "https://llm.example/v1", "api_key_env": "CLINIC_KEY"}
    with pytest.raises(BuildError, match=r"Step 'tasks': .*CLINIC_KEY"):
        quiet(write(steps=steps, llm=llm))
    assert not (tmp_path / "build" / "queries").exists()
