"""A folder of judgements as `medteb judge` writes it."""

from __future__ import annotations

import json

import pytest

SETTINGS = {"model": "qwen3", "temperature": 0.0, "prompt": "0123456789abcdef", "base_url": "http://x"}
ANSWERED = [{"date": "2026-11-01", "model": "qwen3-2507", "pairs": 2}]


@pytest.fixture
def judged(tmp_path):
    """The folder `judged`: two judges, with a pair that one and a pair that none has graded."""
    folder = tmp_path / "judged"
    folder.mkdir()
    grades = [("q1", "d1", "b", "S"), ("q1", "d1", "a", "A"), ("q1", "d2", "b", "D")]
    names = ("query-id", "corpus-id", "judge", "grade")
    rows = [json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in grades]
    (folder / "judgements.jsonl").write_text("".join(rows))
    failed = [("q1", "d2", "a", "no-json"), ("q1", "d3", "a", "no-json"), ("q1", "d3", "b", "cut")]
    rows = [json.dumps(dict(zip((*names[:3], "reason"), row, strict=True))) + "\n" for row in failed]
    (folder / "failed.jsonl").write_text("".join(rows))
    anonymised = {"step": "anonymize", "settings": {"version": "medteb/3", "strict": True}}
    pooled = {
        "step": "pool",
        "settings": {"depth": 100, "size": 20},
        "retrievers": {"bm25": {"kind": "bm25"}, "dense": {"kind": "run"}},
    }
    manifest = {
        "step": "judge",
        "settings": {"b": SETTINGS, "a": {"cross_encoder": "bge", "variant": "v2"}},
        "judges": {"a": {}, "b": {}},
        "before": {"queries": [anonymised], "documents": [anonymised], "pools": [pooled]},
    }
    (folder / "step.json").write_text(json.dumps(manifest))
    (folder / "manifest.json").write_text(json.dumps(manifest))
    content = {"judges": {"b": {"settings": SETTINGS, "answered": ANSWERED}, "a": {"undated": 1}}}
    (folder / "provenance.json").write_text(json.dumps(content))
    return folder
