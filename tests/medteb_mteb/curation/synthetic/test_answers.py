"""Answers as lists of strings and as examples, and the forms of queries."""

from __future__ import annotations

import json

import pytest

from medteb_mteb.curation.llm.client import Prompt
from medteb_mteb.curation.llm.tolerant import Rejected
from medteb_mteb.curation.synthetic.checks import PAIR_KEYS, Example, read_example, strings_of, tidied
from medteb_mteb.curation.synthetic.forms import draw_forms, form_problem

PROMPT = Prompt("1", "系统", "问题", {"type": "object"}, 5)
EXAMPLE = dict(zip(PAIR_KEYS, ("痛风能喝酒吗", "不宜饮酒。", "外用药膏。"), strict=True))


def queries(content):
    return strings_of("queries")(PROMPT, content)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("1. 痛风怎么办？", "痛风怎么办？"),
        ("（2）痛风怎么办？", "痛风怎么办？"),
        ("3.痛风怎么办？", "痛风怎么办？"),
        ("（痛风）怎么办？", "（痛风）怎么办？"),
        ("2019年痛风指南", "2019年痛风指南"),
        ("“”", "“”"),
        ("- 痛风 怎么办", "痛风 怎么办"),
        ("“痛风怎么办？”", "痛风怎么办？"),
        ('"a" or "b"', '"a" or "b"'),
        ("2.5 mg够吗？", "2.5 mg够吗？"),
        ("  痛风\n怎么办 ", "痛风 怎么办"),
    ],
)
def test_numbers_and_quotation_marks_are_taken_off(line, text):
    assert tidied(line) == text


@pytest.mark.parametrize(
    ("content", "strings"),
    [
        ('{"queries": ["1. 痛风", "“用药”", ""]}', ("痛风", "用药", "")),
        ('{"queries": []}', ()),
        ('<think>{"queries": ["no"]}</think>\n```json\n{"queries": ["a\\nb"]}\n```', ("a b",)),
        ('{"queries": ["a"], "more": 7}', ("a",)),
    ],
)
def test_a_list_of_strings_is_read_and_tidied(content, strings):
    assert queries(content) == strings


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('{"queries": ["a"', "no-json"),
        ('{"query": ["a"]}', "missing-key"),
        ('{"queries": "a"}', "not-strings"),
        ('{"queries": ["a", 1]}', "not-strings"),
        ('{"queries": null}', "not-strings"),
    ],
)
def test_an_answer_without_a_list_of_strings_is_rejected(content, reason):
    with pytest.raises(Rejected) as caught:
        queries(content)
    assert str(caught.value) == reason


def test_an_example_has_a_tidy_query_and_its_documents_as_they_are():
    answer = EXAMPLE | {PAIR_KEYS[0]: ' 1. "痛风\n能喝酒吗" ', PAIR_KEYS[1]: "\n1. 不宜。\n2. 多喝水。 "}
    expected = Example("痛风 能喝酒吗", "1. 不宜。\n2. 多喝水。", "外用药膏。")
    assert read_example(PROMPT, json.dumps(answer, ensure_ascii=False)) == expected


@pytest.mark.parametrize("key", PAIR_KEYS)
@pytest.mark.parametrize(
    ("value", "reason"), [(..., "missing-key"), (["a"], "not-strings"), ("\u3000\n", "empty")]
)
def test_an_incomplete_example_is_rejected(key, value, reason):
    answer = EXAMPLE | {key: value}
    if value is ...:
        del answer[key]
    with pytest.raises(Rejected) as caught:
        read_example(PROMPT, json.dumps(answer))
    assert str(caught.value) == reason


def test_half_of_a_surrogate_pair_is_replaced_so_that_a_file_can_hold_the_texts():
    assert queries('{"queries": ["痛\\ud83d风", "\\ud83d\\ude00"]}') == ("痛?风", "\U0001f600")
    example = read_example(PROMPT, json.dumps({key: f"{text}\ud800" for key, text in EXAMPLE.items()}))
    assert example == Example(*(f"{text}?" for text in EXAMPLE.values()))


@pytest.mark.parametrize(
    ("text", "language", "asks"),
    [
        ("痛风怎么办", "zh", True),
        ("痛风能喝酒吗", "zh", True),
        ("痛风 急性期 用药", "zh", False),
        ("吗啡 用量", "zh", False),
        ("gout?", "en", True),
        ("Is gout treated", "en", True),
        ("isotretinoin dose", "en", False),
        ("gout how treated", "en", False),
    ],
)
def test_a_text_either_asks_or_is_keywords(text, language, asks):
    assert form_problem(text, "question", language) == ("" if asks else "not-a-question")
    assert form_problem(text, "case", language) == ("" if asks else "not-a-question")
    assert form_problem(text, "keywords", language) == ("not-keywords" if asks else "")


@pytest.mark.parametrize(
    ("text", "language", "reason"),
    [
        ("痛风。休息", "zh", "not-keywords"),
        ("gout. rest", "en", "not-keywords"),
        ("colchicine 0.5 mg", "en", ""),
        ("秋水仙碱 0.5mg", "zh", ""),
    ],
)
def test_keywords_are_no_sentence(text, language, reason):
    assert form_problem(text, "keywords", language) == reason


def test_forms_are_drawn_by_weight_and_a_smaller_draw_begins_a_larger_one():
    drawn = draw_forms(4000, "seed")
    assert drawn.count("question") / 4000 == pytest.approx(0.6, abs=0.03)
    assert drawn[:7] == draw_forms(7, "seed")
