from __future__ import annotations

import time

import pytest

from mar_st.index.snippets import MAX_CHARACTERS, MIN_CHARACTERS, snippet
from mar_st.text.words import query_terms

FILLER = "这里讲的是别的事情，与所问无关，只是为了把文章写长一些。"
LONG = FILLER * 10 + "糖尿病患者可以吃苹果吗？每天吃半个苹果，注意血糖。" + FILLER * 10


def test_the_window_holds_the_terms():
    window = snippet(LONG, "糖尿病能吃苹果吗")
    assert "糖尿病患者可以吃苹果吗" in window
    assert window.startswith("…")
    assert window.endswith("…")
    assert MIN_CHARACTERS <= len(window.strip("…")) <= MAX_CHARACTERS


def test_it_starts_where_a_sentence_starts():
    assert snippet(LONG, "糖尿病").lstrip("…").startswith(("这里", "糖尿病"))


def test_many_different_terms_win_over_one_repeated():
    text = "血糖" * 30 + FILLER * 10 + "血糖高的糖尿病人少吃苹果" + FILLER * 10
    assert "糖尿病人少吃苹果" in snippet(text, "糖尿病 血糖 苹果")


@pytest.mark.parametrize("query", [None, "", "，。！", "完全没有出现xyz"])
def test_without_a_match_the_beginning_is_given(query):
    beginning = snippet(LONG, query)
    assert not beginning.startswith("…")
    assert LONG.startswith(beginning.rstrip("…"))
    assert len(beginning) > MIN_CHARACTERS


@pytest.mark.parametrize("at", [0, 3, 60, 118, 500, 1100])
def test_lengths_hold_wherever_the_match_is(at):
    text = ("甲" * at + "高血压" + "乙" * 1200)[:1200]
    window = snippet(text, "高血压")
    assert "高血压" in window
    assert MIN_CHARACTERS <= len(window.strip("…")) <= MAX_CHARACTERS


def test_a_match_at_the_end_is_shown():
    window = snippet("甲" * 3000 + "高血压", "高血压")
    assert window.endswith("高血压")
    assert len(window) >= MIN_CHARACTERS


def test_short_texts_are_given_whole():
    assert snippet(" 头疼\n怎么办 ", "头疼") == "头疼 怎么办"
    assert snippet("", "头疼") == ""


def test_latin_words_are_found_in_either_case():
    text = "x " * 100 + "Aspirin 100mg once daily. " + "y " * 100
    assert "Aspirin 100mg" in snippet(text, "aspirin 100MG")


def test_terms_are_pairs_of_characters_and_words():
    assert query_terms("糖尿病 Type2？吃(药") == ["糖尿", "尿病", "type2", "吃", "药"]


def test_a_long_query_costs_little():
    query = "".join(chr(0x4E00 + 7 * place) for place in range(2900))
    text = "".join(chr(0x4E00 + 7 * (place * 13 % 2900)) for place in range(2000))
    snippet(text, query)
    began = time.perf_counter()
    for _ in range(100):
        snippet(text, query)
    assert time.perf_counter() - began < 2  # with all terms in one pattern: a minute


def test_overlapping_terms_are_shown_despite_letters_with_longer_lower_case():
    text = "İstanbul " * 30 + "type2 Diabetes, type2diabetes insulin " + "x " * 100
    window = snippet(text, "TYPE2 diabetes insulin")
    assert "type2 Diabetes, type2diabetes insulin" in window
    assert len(window.strip("…")) <= MAX_CHARACTERS
