from __future__ import annotations

import json

import pytest

from medteb_mteb.curation.llm.tolerant import Rejected, json_object, spoken


@pytest.mark.parametrize(
    "answer",
    [
        '{"a": {"b": "}"}}',
        ' \n{"a": {"b": "}"}}\n',
        '```json\n{"a": {"b": "}"}}\n```',
        '结果如下：\n```\n{"a": {"b": "}"}}\n```\n以上。',
        '<think>先想 {一下} ```x```</think>\n{"a": {"b": "}"}}',
        '好的，答案是{"a": {"b": "}"}}，请查收。',
        '\ufeff{"a": {"b": "}"}}',
        '想一想 {一下}。\n</think>\n{"a": {"b": "}"}}',
        '**{"a": {"b": "}"}}**',
        '{"a": {"b": "}"}}\n最终答案：\n{"a": {"b": "}"}}',
    ],
)
def test_text_around_an_object_is_ignored(answer):
    assert json_object(answer) == {"a": {"b": "}"}}


@pytest.mark.parametrize(
    "answer",
    [
        "{'a': ['x', 'it\\'s'], 'b': null}",
        '{"a": ["x", "it\'s",], "b": null,}',
        '{a: ["x", "it\'s"], b: null}',
        "{“a”：[“x”，“it's”]，“b”：null}",
        '{"a": ["x", "it\'s"], // two\n"b": null}',
        '```json\n{"a": ["x" "it\'s"] "b": null}\n```',
        json.dumps('{"a": ["x", "it\'s"], "b": null}'),
    ],
)
def test_small_mistakes_are_repaired(answer):
    assert json_object(answer) == {"a": ["x", "it's"], "b": None}


def test_valid_text_is_left_as_it_is():
    said = {"query": "**粗体**和`代码`：“引号”，// 不是注释"}
    assert json_object(json.dumps(said, ensure_ascii=False)) == said


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "抱歉，我无法回答。",
        '{"a": {"b": 1}',  # cut: the inner object is not the answer
        '{"a": 1}{"a": 2}',
        '["a"]',
        '"a"',
        '{"a": 1, "a": 2}',
        "{a: 1, a: 2,}",
        "}{",
        '```json\n{"a": 1}\n```\n```json\n{"a": 2}\n```',
        "{" * 100_000 + "}" * 100_000,
    ],
)
def test_an_answer_without_one_object_is_rejected(answer):
    with pytest.raises(Rejected) as rejected:
        json_object(answer)
    assert rejected.value.reason == "no-json"


@pytest.mark.thorough
@pytest.mark.timeout(20)
def test_an_answer_of_brackets_takes_no_minutes():
    for noise in ("[" * 900 + "}", "[x" * 900 + "]", "{" * 900 + "]"):
        with pytest.raises(Rejected):
            json_object(noise * 60)
    prose = "见文献" + "[1]" * 100 + "[" * 50
    assert json_object(prose + '{"a": 1}') == {"a": 1}


@pytest.mark.parametrize("depth", [700, 20_000])
def test_an_object_nested_too_deeply_is_rejected(depth):
    nested = '{"a": ' + "[" * depth + "1" + "]" * depth + "}"
    with pytest.raises(Rejected):
        json_object(f"{nested} {nested}")


@pytest.mark.parametrize(
    ("content", "cut", "expected"),
    [
        ('<think>想</think>{"a": 1}', False, '{"a": 1}'),
        ('<think>想，得 {"a": 1}</think>\n', False, '想，得 {"a": 1}'),
        ('<think>也许 {"a": 1}？不对。</think>', False, ""),
        ('<|channel|>analysis<|message|>也许 {"a": 1}？', False, ""),
        ('好的：{"a": 1} 以上。', False, '好的：{"a": 1} 以上。'),
        ('好的：{"a": 1} 以上', True, ""),
        ('```json\n{"a": 1}\n```\n以上', True, '```json\n{"a": 1}\n```\n以上'),
        ('想</think>好的：{"a": 1} 以', True, '好的：{"a": 1} 以'),
        ('<|channel|>final<|message|>好的：{"a": 1} 以', True, '好的：{"a": 1} 以'),
        ('<|channel|>analysis<|message|>{"a": 1} 不', True, ""),
    ],
)
def test_a_draft_in_reasoning_is_not_an_answer(content, cut, expected):
    assert spoken(content, cut=cut) == expected
