"""Amounts of data and lengths of texts: read, sampled, or as the recipe expects them."""

from __future__ import annotations

import json

import pytest

from mar_st.planning import lengths
from mar_st.planning.lengths import entry_stats, padded_length, tokens_of
from mar_st.planning.plan import plan
from mar_st.recipes.schema import Backbone, Data

pytestmark = pytest.mark.usefixtures("no_dry_runs")


def test_large_files_are_sampled(recipe, monkeypatch):
    whole = plan(recipe)
    monkeypatch.setattr(lengths, "MAX_READ_BYTES", 10)
    monkeypatch.setattr(lengths, "SAMPLE_TEXTS", 20)
    sampled = plan(recipe)
    for one, other in zip(whole.stages, sampled.stages, strict=True):
        assert other.examples == pytest.approx(one.examples, rel=0.15)
        assert other.tokens_per_step == pytest.approx(one.tokens_per_step, rel=0.2)


def test_a_large_file_without_line_breaks_is_planned(tmp_path, recipe, monkeypatch):
    (entry,) = recipe.data[:1]
    file = tmp_path / "one.jsonl"
    file.write_text('{"query": "头疼", "positive": "休息"}', encoding="utf-8")
    monkeypatch.setattr(lengths, "MAX_READ_BYTES", 10)
    changes = {"path": str(file), "form": "auto", "columns": {}, "where": {}, "limit": None, "role": None}
    assert lengths.entry_stats(entry.model_copy(update=changes)).triples == 1


def _texts(tmp_path, number=40, **fields):
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": f"头疼{i}"}) + "\n" for i in range(number)), encoding="utf-8")
    return Data(name="texts", path=str(path), form="texts", **{"role": "query", **fields})


@pytest.mark.parametrize("role", ["query", "document"])
@pytest.mark.parametrize("limit", [None, 10])
def test_a_sampled_file_of_texts_has_as_many_as_one_that_is_read(tmp_path, monkeypatch, role, limit):
    entry = _texts(tmp_path, role=role, limit=limit)
    whole = entry_stats(entry)
    assert (whole.queries or whole.documents) == (limit or 40)
    monkeypatch.setattr(lengths, "MAX_READ_BYTES", 10)
    monkeypatch.setattr(lengths, "SAMPLE_TEXTS", 20)
    sampled = entry_stats(entry)
    assert (sampled.queries, sampled.documents) == pytest.approx((whole.queries, whole.documents))
    assert sampled.triples is whole.triples is None
    assert set(sampled.query_texts) <= {f"头疼{i}" for i in range(40)}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, (None, None, None, None)),
        ({"expected_rows": 80}, (80, 80, 80, 240)),
        ({"expected_rows": 80, "limit": 10, "negatives": 0}, (10, 10, 10, 10)),
        ({"expected_rows": 80, "form": "texts", "role": "document"}, (None, None, 0, 80)),
    ],
)
def test_without_data_the_rows_are_those_that_the_recipe_expects(fields, expected):
    stats = entry_stats(Data(name="gone", path="gone.jsonl", **{"negatives": 2, **fields}))
    assert (stats.triples, stats.pairs, stats.queries, stats.documents) == expected
    assert not stats.sampled


def test_symmetric_pairs_are_queries_on_both_sides(recipe):
    entry = recipe.data[0]
    apart, same = entry_stats(entry), entry_stats(entry.model_copy(update={"symmetric": True}))
    assert (apart.queries, apart.documents) == (70, 210)
    assert (same.queries, same.documents) == (280, 0)
    assert sorted(same.query_texts) == sorted(apart.query_texts + apart.document_texts)


def test_without_a_tokenizer_tokens_are_estimated_from_characters(recipe):
    count, how = tokens_of(Backbone(source="org/not-here", max_length=16), recipe, ["头疼"])
    assert how == "estimated from characters"
    assert count("头疼发热" * 3) == 8 + 2  # 1.5 characters a token, and two special tokens
    assert count("a" * 12) == 3 + 2
    assert count("头疼" * 100) == 16


def test_a_tokenizer_of_the_recipe_is_trained_on_the_sampled_texts(recipe):
    count, how = tokens_of(recipe.query, recipe, ["头疼发热"] * 5)
    assert how == "tokenizer trained on sampled texts"
    assert count("头") == 3
    assert count("头" * 100) == recipe.query.max_length


def test_a_batch_is_padded_to_its_longest_text_unless_texts_are_sorted():
    sample = [1] * 50 + [100] * 50
    assert padded_length(sample, 1) == pytest.approx(50.5, rel=0.5)
    assert padded_length(sample, 32) == 100
    assert padded_length(sample, 32, groups=64) == pytest.approx(50.5, rel=0.1)
    assert padded_length([7], 8, groups=3) == 7
