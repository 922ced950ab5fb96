"""The step `dedup`: drops what nearly repeats an earlier text, by its threshold and width."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from medteb_mteb.curation.files.step import run_step
from medteb_mteb.curation.texts.near_duplicates import NearDuplicates

DEDUP = {"step": "dedup", "in": "documents.jsonl", "threshold": 0.95}


def test_a_repeated_document_is_dropped_and_nothing_more_by_a_second_step(made, rows_of):
    result, folder = made(DEDUP, {**DEDUP, "name": "again", "in": "dedup"})
    (dropped,) = rows_of(folder.parent / "dedup" / "dropped-00000.jsonl")
    assert (dropped["_id"], dropped["reason"]) == ("copy", "near-duplicate")
    assert result == {"read": 48, "kept": 48, "dropped": {}}


def test_the_step_writes_what_the_function_writes_with_its_options(made, files_of, tmp_path):
    options = {"threshold": 0.4, "width": 2, "sources": [{"name": "clinic", "licence": "mit"}]}
    result, folder = made({**DEDUP, **options})
    assert result["dropped"]["near-duplicate"] > 1
    run_step(NearDuplicates(0.4, 2), tmp_path / "documents.jsonl", tmp_path / "by-hand", show_progress=False)
    by_hand = files_of(tmp_path / "by-hand")
    for name in ("records-00000.jsonl", "dropped-00000.jsonl"):
        assert files_of(folder)[name] == by_hand[name]
    assert '"clinic"' in (folder / "manifest.json").read_text()


def test_the_column_of_the_texts_may_be_named(made, save):
    save(
        "qa.jsonl",
        [{"_id": str(i), "q": f"问题{i}" * 4, "a": "多休息，多喝水，按时服药。"} for i in range(5)],
    )
    kept = {}
    for column in "qa":
        step = {"step": "dedup", "name": column, "in": "qa.jsonl", "columns": {"text": column}}
        kept[column] = made(step, out=f"build-{column}")[0]["kept"]
    assert kept == {"q": 5, "a": 1}


@pytest.mark.parametrize(("key", "value"), [("threshold", 0), ("threshold", 1.1), ("width", 0)])
def test_impossible_options_are_refused(parsed, key, value):
    with pytest.raises(ValidationError, match=key):
        parsed(**{**DEDUP, key: value})
