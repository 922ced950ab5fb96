"""Test queries of a build that are in its training data."""

from __future__ import annotations

import json

import pytest

from medteb_mteb.curation.pipeline.leaks import MAX_EXAMPLES, leak_report
from medteb_mteb.curation.pipeline.opened import Build
from medteb_mteb.editions import write_manifest

PAIRS = {"step": "pairs", "queries": ["queries.jsonl"]}
STS = {"step": "sts", "dictionary": "documents.jsonl", "queries": "queries.jsonl", "edition": "e"}
STS = {**STS, "licence": "mit", "test": 0.4}
LLM = {"name": "w", "model": "m", "base_url": "http://127.0.0.1:9/v1"}
QUERIES = [f"{disease}的病人平时不能吃什么东西" for disease in ("感冒", "高血压", "糖尿病", "胃炎", "湿疹")]


def write_rows(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


@pytest.fixture
def build(write):
    """A build whose edition tests the sentences of `QUERIES`, and whose pairs are these training queries."""

    def call(*training, steps=(PAIRS, STS)):
        build = Build.open(write(steps=[*steps], llm=LLM))
        for step in build.pipeline.steps:
            build.folder(step).mkdir(parents=True)
        rows = [
            {"sentence1": text, "sentence2": f"与此完全无关的另外一句话{i}", "score": i}
            for i, text in enumerate(QUERIES)
        ]
        edition = build.root / "sts" / "MedTEBSTS"
        write_rows(edition / "test.jsonl", rows)
        write_manifest(edition, task="MedTEBSTS", name="e", version="1", licence="mit", counts={})
        texts = [{"_id": f"t{i}", "text": text} for i, text in enumerate(training)]
        write_rows(build.root / "pairs" / "queries.jsonl", texts)
        return build

    return call


def test_copies_and_near_duplicates_of_tests_are_counted_and_named(build):
    made = build(QUERIES[0], f"{QUERIES[1]}呢", "骨折之后多久可以下地走路")
    report = leak_report(made)
    assert (report["tests"], report["leaks"]) == (2 * len(QUERIES), 2)
    examples = report["training"]["pairs"].pop("examples")
    assert report["training"]["pairs"] == {"queries": 3, "leaks": 2}
    assert [example.partition(" ~ ")[0] for example in examples] == [QUERIES[0], f"{QUERIES[1]}呢"]
    assert set(report["training"]) == {"pairs", "sts"}
    written = json.loads((made.root / "leakage.json").read_text(encoding="utf-8"))
    assert written["leaks"] == 2


def test_a_build_without_leaks_says_so(build):
    report = leak_report(build("骨折之后多久可以下地走路"))
    assert report["leaks"] == 0
    assert report["training"]["pairs"] == {"queries": 1, "leaks": 0, "examples": []}


def test_of_many_leaks_some_are_listed_and_all_are_counted(build):
    report = leak_report(build(*(QUERIES * 5)))
    assert report["training"]["pairs"]["leaks"] == 25
    assert len(report["training"]["pairs"]["examples"]) == MAX_EXAMPLES


@pytest.mark.parametrize("steps", [[PAIRS], [{"step": "dedup", "in": "documents.jsonl"}]])
def test_without_tests_or_training_data_there_is_no_report(build, steps):
    made = build(QUERIES[0], steps=steps)
    assert leak_report(made) is None
    assert not (made.root / "leakage.json").exists()
