"""Answers of an LLM as lists of strings and as examples: tidied, or rejected with a reason."""

from __future__ import annotations

import json

import pytest

from medteb_mteb.curation.llm import Prompt, Rejected
from medteb_mteb.curation.synthetic.answers import (
    PAIR_KEYS,
    Example,
    example_schema,
    read_example,
    strings_of,
    strings_schema,
    tidied,
)

PROMPT = Prompt("1", "系统", "问题", {"type": "object"}, 5)
EXAMPLE = dict(zip(PAIR_KEYS, ("痛风能喝酒吗", "不宜饮酒。", "外用药膏。"), strict=True))


def queries(content):
    return strings_of("queries")(PROMPT, content)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("1. 痛风怎么办？", "痛风怎么办？"),
        ("(2) 痛风怎么办？", "痛风怎么办？"),
        ("（2）痛风怎么办？", "痛风怎么办？"),
        ("12、痛风怎么办？", "痛风怎么办？"),
        ("3.痛风怎么办？", "痛风怎么办？"),
        ("（痛风）怎么办？", "（痛风）怎么办？"),
        ("2019年痛风指南", "2019年痛风指南"),
        ("“痛风”和“高尿酸”", "“痛风”和“高尿酸”"),
        ("“”", "“”"),
        ("- 痛风 怎么办", "痛风 怎么办"),
        ("“痛风怎么办？”", "痛风怎么办？"),
        ('"a" or "b"', '"a" or "b"'),
        ("2.5 mg够吗？", "2.5 mg够吗？"),
        ("24小时尿酸", "24小时尿酸"),
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
        ("", "no-json"),
        ("痛风怎么办？", "no-json"),
        ('["痛风"]', "no-json"),
        ('{"queries": ["a"], "queries": ["b"]}', "no-json"),
        ('{"queries": ["a"', "no-json"),
        ('{"queries": ' + "[" * 100_000, "no-json"),
        ('{"query": ["a"]}', "missing-key"),
        ('{"queries": "a"}', "not-strings"),
        ('{"queries": {"1": "a"}}', "not-strings"),
        ('{"queries": ["a", 1]}', "not-strings"),
        ('{"queries": [["a"]]}', "not-strings"),
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
    ("value", "reason"),
    [
        (..., "missing-key"),
        (None, "not-strings"),
        (["a"], "not-strings"),
        ("", "empty"),
        ("\u3000\n", "empty"),
    ],
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


@pytest.mark.parametrize(("schema", "keys"), [(strings_schema("q"), ("q",)), (example_schema(), PAIR_KEYS)])
def test_schemas_ask_for_all_that_is_read_and_for_nothing_else(schema, keys):
    assert (tuple(schema["properties"]), tuple(schema["required"])) == (keys, keys)
    assert schema["additionalProperties"] is False
