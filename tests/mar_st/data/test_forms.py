"""Tests of every form of training data, and of the settings of a data entry."""

from __future__ import annotations

import json

import pytest

from mar_st.data.columns import to_dataset
from mar_st.data.sequences import Triple
from mar_st.data.training import read_source
from mar_st.errors import MarError
from mar_st.recipes.schema import Data


def _write(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def _entry(path, **settings):
    return Data(name="entry", path=str(path), **settings)


ROWS = [{"query": f"问{i}", "positive": f"答{i}", "source": "ab"[i % 2]} for i in range(10)]


def test_columns_where_and_limit_select_the_data(tmp_path):
    path = _write(tmp_path / "rows.jsonl", [{"title": r["query"], "body": r["positive"], **r} for r in ROWS])
    renamed = [{"title": r["query"], "body": r["positive"], "source": r["source"]} for r in ROWS]
    other = _write(tmp_path / "renamed.jsonl", renamed)
    columns = {"query": "title", "positive": "body"}
    kept = read_source(_entry(other, columns=columns, where={"source": ("a",)}), 0).triples
    assert kept == [t for t in read_source(_entry(path), 0).triples if int(t.query[1]) % 2 == 0]
    assert len(kept) == 5
    few = [read_source(_entry(path, limit=4), seed).triples for seed in (0, 0, 1)]
    assert few[0] == few[1] != few[2]
    assert [t.query for t in few[0]] == sorted(t.query for t in few[0])
    assert len(few[2]) == 4
    with pytest.raises(MarError, match="no column 'headline'"):
        read_source(_entry(other, columns={"query": "headline"}), 0)
    with pytest.raises(MarError, match=r"holds no triples with source in \['z'\]"):
        read_source(_entry(path, where={"source": ("z",)}), 0)


def test_labelled_pairs_are_grouped_by_their_first_sentence(tmp_path):
    rows = [
        {"sentence1": "甲", "sentence2": "乙", "label": 1},
        {"sentence1": "甲", "sentence2": "丙", "label": 0},
        {"sentence1": "丁", "sentence2": "戊", "label": 0},
    ]
    path = _write(tmp_path / "pairs.jsonl", rows)
    assert read_source(_entry(path), 0).triples == [Triple("甲", ("乙",), ("丙",))]
    assert read_source(_entry(path, form="pairs"), 0).triples == [Triple("甲", ("乙",), ("丙",))]


@pytest.mark.parametrize("labels", [("entailment", "neutral", "contradiction"), (0, 1, 2)])
def test_nli_contradictions_are_hard_negatives(tmp_path, labels):
    rows = [{"premise": "前", "hypothesis": h, "label": n} for h, n in zip("是中否", labels, strict=True)]
    path = _write(tmp_path / "nli.jsonl", rows)
    assert read_source(_entry(path), 0).triples == [Triple("前", ("是",), ("否",))]
    bad = _write(tmp_path / "bad.jsonl", [{"premise": "前", "hypothesis": "后", "label": "maybe"}])
    with pytest.raises(MarError, match=r"bad.jsonl:1: .*'maybe'"):
        read_source(_entry(bad), 0)


def test_single_texts_are_read_and_blank_ones_refused(tmp_path):
    path = _write(tmp_path / "texts.jsonl", [{"text": "一"}, {"text": "二"}])
    source = read_source(_entry(path, form="texts", role="document"), 0)
    assert (source.texts, source.triples) == (["一", "二"], [])
    empty = _write(tmp_path / "empty.jsonl", [{"text": "一"}, {"text": " "}])
    with pytest.raises(MarError, match=r"empty.jsonl:2: needs a 'text'"):
        read_source(_entry(empty, form="texts", role="document"), 0)


def test_instructions_of_rows_replace_the_prompt(tmp_path):
    rows = [{**row, "instruction": "找答案"} for row in ROWS]
    path = _write(tmp_path / "rows.jsonl", rows)
    source = read_source(_entry(path, prompt=""), 0)
    data = to_dataset(source.triples, negatives=0, seed=0)
    assert data[0]["query"] == "<instruct>找答案\n<query>问0"
    with pytest.raises(MarError, match="which replaces a prompt"):
        read_source(_entry(path), 0)
    mixed = _write(tmp_path / "mixed.jsonl", [*rows, ROWS[0]])
    with pytest.raises(MarError, match="10 of 11 rows"):
        read_source(_entry(mixed, prompt=""), 0)


def test_unavailable_hub_names_are_reported():
    with pytest.raises(MarError, match=r"hub:nobody/nothing could not be loaded"):
        read_source(_entry("hub:nobody/nothing"), 0)


def test_one_column_may_serve_as_query_and_positive(tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text('{"text": "头疼", "source": "a"}\n{"text": "发热", "source": "b"}\n', encoding="utf-8")
    entry = Data(name="texts", path=str(path), columns={"query": "text", "positive": "text"}, negatives=0)
    assert read_source(entry).triples == [
        Triple("头疼", ("头疼",), (), source="a"),
        Triple("发热", ("发热",), (), source="b"),
    ]
