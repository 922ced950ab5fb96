"""Provenance of labels, from the records of earlier steps."""

from __future__ import annotations

import json

import pytest

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.labels.provenance import (
    anonymisers_in,
    judge_entry,
    provenance_of_judging,
    provenance_of_labels,
    provenance_of_texts,
    retrievers_in,
)


def test_a_judging_tells_its_judges_retrievers_and_anonymisers(judged):
    found = provenance_of_judging(judged)
    assert found == {
        "judges": [
            {"name": "a", "model": "bge", "variant": "v2", "answered": [], "undated": 1},
            {
                "name": "b",
                "model": "qwen3",
                "temperature": 0.0,
                "prompt": "0123456789abcdef",
                "answered": [{"date": "2026-11-01", "model": "qwen3-2507", "pairs": 2}],
            },
        ],
        "retrievers": [
            {"name": "bm25", "identity": {"kind": "bm25"}, "depth": 100, "size": 20},
            {"name": "dense", "identity": {"kind": "run"}, "depth": 100, "size": 20},
        ],
        "anonymisers": [{"version": "medteb/3", "strict": True}],
    }
    assert provenance_of_judging(judged / "judgements.jsonl") == found
    (judged / "manifest.json").unlink()  # not finished
    assert provenance_of_judging(judged) == found


def test_texts_declared_anonymous_are_recorded_as_that(judged):
    manifest = json.loads((judged / "manifest.json").read_text())
    (judged / "manifest.json").write_text(json.dumps(manifest | {"before": {}, "already_anonymous": True}))
    assert provenance_of_judging(judged)["anonymisers"] == [{"declared": "texts hold nothing personal"}]


def test_other_folders_have_no_provenance_of_judging(judged, tmp_path):
    assert provenance_of_judging(tmp_path) == {}
    (judged / "manifest.json").write_text('{"step": "pool"}')
    assert provenance_of_judging(judged) == {}


@pytest.mark.parametrize("change", [{"settings": [1]}, {"settings": {"a": 7}}, {"before": [1]}, {"before": {
    "pools": "x", "queries": [None]}}])  # fmt: skip
def test_entries_of_another_form_are_left_out(judged, change):
    manifest = json.loads((judged / "manifest.json").read_text())
    (judged / "manifest.json").write_text(json.dumps(manifest | change))
    found = provenance_of_judging(judged)
    if "settings" in change:
        assert [judge for judge in found["judges"] if judge["model"]] == []
        assert len(found["retrievers"]) == 2
    else:
        assert (found["retrievers"], found["anonymisers"]) == ([], [])
        assert len(found["judges"]) == 2


def test_a_damaged_manifest_is_one_clear_error(judged):
    (judged / "manifest.json").write_text('{"step": "jud')
    with pytest.raises(BuildError, match=r"manifest\.json is damaged"):
        provenance_of_judging(judged)


def test_labels_add_the_rule_and_the_agreement_to_the_provenance_of_their_folder(tmp_path):
    assert provenance_of_labels(tmp_path) == {}
    (tmp_path / "provenance.json").write_text('{"judges": [{"name": "a"}]}')
    agreement = {
        "rule": "majority",
        "positive": ["S"],
        "labels": {"positive": 3},
        "agreement": {"labels": {"alpha": 0.8}, "pairs": 9},
    }
    (tmp_path / "agreement.json").write_text(json.dumps(agreement))
    expected = {
        "judges": [{"name": "a"}],
        "consensus": [{**agreement, "agreement": {"alpha": 0.8}}],
    }
    assert provenance_of_labels(tmp_path) == expected
    assert provenance_of_labels(tmp_path / "labels.jsonl") == expected


def test_anonymisers_of_texts_are_listed_once(tmp_path):
    step = {"step": "anonymize", "settings": {"version": "medteb/3"}}
    for name, manifest in (("a", step), ("b", {"step": "dedup", "before": [step]})):
        (tmp_path / name).mkdir()
        for file in ("step.json", "manifest.json"):
            (tmp_path / name / file).write_text(json.dumps(manifest))
    found = provenance_of_texts(tmp_path / "a", tmp_path / "b", "hub:org/name")
    assert found == {"anonymisers": [{"version": "medteb/3", "strict": False}]}
    assert anonymisers_in([step, step | {"settings": {"version": "medteb/2", "strict": 1}}]) == [
        {"version": "medteb/3", "strict": False},
        {"version": "medteb/2", "strict": True},
    ]


def test_settings_that_name_a_server_or_a_key_are_not_shown():
    settings = {"model": "m", "base_url": "http://10.0.0.1", "api_key_env": "KEY", "extra": {"top_p": 1}}
    assert judge_entry("a", settings) == {"name": "a", "model": "m", "extra": {"top_p": 1}}
    assert retrievers_in([{"step": "dedup", "retrievers": {"bm25": {}}}]) == []
