"""Checks before the first step: keys, and texts that were not anonymised."""

from __future__ import annotations

import pytest

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.pipeline.opened import Build
from medteb_mteb.curation.pipeline.preflight import check_before

QUERIES = {"step": "anonymize", "name": "queries", "in": "queries.jsonl"}
DOCUMENTS = {"step": "anonymize", "name": "documents", "in": "documents.jsonl"}
POOL = {"step": "pool", "queries": "queries.jsonl", "documents": "documents.jsonl", "retrievers": ["bm25"]}


def judge(queries, documents):
    return {"step": "judge", "queries": queries, "documents": documents, "pools": "pool"}


@pytest.fixture
def check(write):
    """Checks a pipeline of these steps, all of them or the first ones."""

    def call(*steps, first=None, **settings):
        build = Build.open(write(steps=[*steps], **settings))
        check_before(build, build.pipeline.steps[:first])

    return call


@pytest.mark.parametrize(
    ("queries", "documents", "named"),
    [
        ("queries.jsonl", "documents", "queries of .*queries.jsonl"),
        ("queries", "documents.jsonl", "documents of .*documents.jsonl"),
        ("queries", "few", "documents of few"),
        ("queries", "hub:org/name", "documents of hub:org/name"),
    ],
)
def test_raw_texts_are_not_sent(check, queries, documents, named):
    raw = {"step": "dedup", "name": "few", "in": "documents.jsonl"}
    steps = [QUERIES, DOCUMENTS, raw, POOL, judge(queries, documents)]
    with pytest.raises(BuildError, match=f"Step 'judge' sends {named} to an LLM"):
        check(*steps)
    check(*steps, already_anonymous=True)
    check(*steps, first=4)


def test_anonymised_texts_stay_so_through_later_steps(check):
    few = {"step": "dedup", "name": "few", "in": "documents"}
    fewer = {"step": "dedup", "name": "fewer", "in": "few"}
    check(QUERIES, DOCUMENTS, few, fewer, POOL, judge("queries", "fewer"))


def test_a_folder_of_a_step_is_left_to_the_check_of_each_text(check, tmp_path):
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "step.json").write_text("{}")
    check(QUERIES, POOL, judge("queries", "made"))


def test_a_missing_key_is_named_with_its_step(check, monkeypatch):
    monkeypatch.delenv("CLINIC_KEY", raising=False)
    steps = [QUERIES, DOCUMENTS, POOL, judge("queries", "documents")]
    with pytest.raises(BuildError, match=r"Step 'judge': .*CLINIC_KEY"):
        check(*steps, judge={"api_key_env": "CLINIC_KEY"})
    monkeypatch.setenv("CLINIC_KEY", "secret")
    check(*steps, judge={"api_key_env": "CLINIC_KEY"})
