"""Grades that are read from the answer of a judge, and the passages that they belong to."""

from __future__ import annotations

import json
import time

import pytest

from medteb_mteb.curation.judge.claims import claims, letter, plain_key

KEYS = ("passage-0-k7f", "passage-1-b2c")
FIRST, SECOND = "Passage-0-k7f", "Passage-1-b2c"


def graded(content, keys=KEYS, **options):
    """The claims with grades instead of their texts."""
    said = claims(content, keys, **options)
    return said if isinstance(said, str) else [(key, letter(value)) for key, value in said]


@pytest.mark.parametrize(
    ("value", "grade"),
    [
        *[(value, "A") for value in ("A", "a", "Ａ", " A级 ", "**A**", "`A`", "“A”", "【A】", "A档", "A.")],
        *[(value, "B") for value in ("等级：B", "Grade: B", "grade is B", "相关程度为B", "SCORE=B")],
        *[(value, "B") for value in ("评级 **B**", "label “B”", "Rating b.")],
        *[(value, "D") for value in ("D（与查询无关）", "D: unrelated", "D - 无关", "D，因为主体不同")],
        *[(value, None) for value in ("A passage", "a. first of all", "A/B", "AB", "4", "相关", "", "E")],
        *[(value, None) for value in ("A 或 B", "A，到 B", "介于 S 与 A", "A (B级)", "A or B", "S、A")],
        *[(value, None) for value in ("S：完全回答，A：部分回答", "A! 不，B!", "A（B？）")],
        *[(value, None) for value in (None, 1, True, float("nan"), {}, [], ["A", "B"], [["A"], "A"])],
        (["A"], "A"),
        ([["A"]], "A"),
    ],
)  # fmt: skip
def test_a_value_states_one_grade_or_none(value, grade):
    assert letter(value) == grade


@pytest.mark.parametrize(
    "written",
    ["Passage-0-k7f", "PASSAGE-0-K7F", "passage_0_k7f", "Passage‑0—k7f", "**Passage-0-k7f**",
     "`Passage 0 k7f`", "“Ｐassage－0－k7f”", " [Passage-0-k7f]\n", "<Passage-0-k7f>", "Passage\\_0\\_k7f"],
)  # fmt: skip
def test_a_key_is_recognised_however_it_is_written(written):
    assert plain_key(written) == "passage-0-k7f"


@pytest.mark.parametrize(
    "content",
    [
        f'{{"{FIRST}": "A", "{SECOND}": "D"}}',
        f'{{"grades": {{"{FIRST}": "A级", "{SECOND}": "D"}}, "note": "两段主体不同"}}',
        f'{{"{FIRST}": "A"}}\n{{"{SECOND}": "D"}}',
        f'[{{"id": "{FIRST}", "grade": "A"}}, {{"id": "{SECOND}", "grade": "D"}}]',
        f'[{{"段落": "{FIRST}", "等级": "A", "reason": "部分回答"}}, {{"段落": "{SECOND}", "等级": "D"}}]',
        f'{{"A": ["{FIRST}"], "D": "{SECOND}", "S": []}}',
        f'{{"{FIRST}": {{"grade": "A", "reason": "一部分"}}, "{SECOND}": {{"grade": "D"}}}}',
        f"{FIRST}: A\n{SECOND}：D级",
        f"1. **{FIRST}** → A\n2. **{SECOND}** → D",
        f"| 段落 | 等级 | 理由 |\n|---|---|---|\n| {FIRST} | A | 部分 |\n| {SECOND} | D | 无关 |",
        f"<think>{FIRST} 也许是 S</think>{{'{FIRST}': 'A', '{SECOND}': 'D',}}",
    ],
)
def test_every_form_of_an_answer_claims_the_same(content):
    assert graded(content) == [(KEYS[0], "A"), (KEYS[1], "D")]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        # A key with two claims occurs twice, so that the reader can refuse the answer.
        (f'{{"{FIRST}": "A", "{FIRST}": "D"}}', [(KEYS[0], "A"), (KEYS[0], "D")]),
        (f'{{"{FIRST}": "A"}} {{"{FIRST}": "D"}}', [(KEYS[0], "A"), (KEYS[0], "D")]),
        (
            f'{{"{FIRST}": {{"grade": "A", "{SECOND}": "S"}}, "{SECOND}": "D"}}',
            [(KEYS[1], "S"), (KEYS[0], "A"), (KEYS[1], "D")],
        ),
        # The same said twice is said once.
        (f'{{"{FIRST}": "A", "{SECOND}": "D"}} {{"{FIRST}": "A", "{SECOND}": "D"}}', None),
        # A form that is filled in afterwards makes no claim.
        (
            f'{{"{FIRST}": "<字母>", "{SECOND}": "<字母>"}}\n{{"{FIRST}": "A", "{SECOND}": "D"}}',
            [(KEYS[0], "A"), (KEYS[1], "D")],
        ),
    ],
)
def test_contradictions_stay_visible_and_repetitions_do_not(content, expected):
    assert graded(content) == (expected or [(KEYS[0], "A"), (KEYS[1], "D")])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('["A", "D"]', "not-an-object"),  # grades without keys say nothing about which passage
        ('{"comment": "很好"}', "not-an-object"),
        (f"{FIRST}: A", "not-json"),  # one of two passages, without JSON
        (f'{{"{FIRST}": "A", "{SECOND}": "D"', "not-json"),
        ("A", "not-json"),
        ("", "not-json"),
    ],
)
def test_an_answer_without_claims_has_a_reason(content, reason):
    assert graded(content) == reason


@pytest.mark.parametrize(
    "content", ["A", "等级：A", '{"grade": "A"}', '"A"', '```json\n{"等级": "A级"}\n```']
)
def test_a_single_passage_needs_no_key(content):
    assert graded(content, KEYS[:1]) == [(KEYS[0], "A")]
    assert isinstance(graded(content), str)


def test_thoughts_that_were_cut_are_no_answer():
    content = f'<think>{{"{FIRST}": "A", "{SECOND}": "D"}}'
    assert graded(content, cut=True) == "not-json"
    assert graded(content) == [(KEYS[0], "A"), (KEYS[1], "D")]


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"grade": ', "}"), ('[{"id": ', "}]")])
@pytest.mark.parametrize("depth", [100, 400, 900, 5000])
def test_an_answer_with_deeply_nested_brackets_is_not_read(opening, closing, depth):
    nested = opening * depth + '"A"' + closing * depth
    content = json.dumps({FIRST: "?", SECOND: "D"}).replace('"?"', nested)
    assert graded(content) == "not-json"
    assert graded(content + content.replace('"A"', '"B"')) == "not-json"


@pytest.mark.parametrize("around", ["grade{}x", "A{}x", "等级为{}x", "A级{}x", "{}x"])
def test_a_long_run_of_marks_is_read_at_once(around):
    """Judges that get stuck repeat a blank until their tokens are used up."""
    start = time.process_time()
    for run in (" ", "*", '"', "\t*", " |", ">", "：", "级"):
        text = around.format(run * 60_000)
        assert letter(text) in (None, "A")
        assert graded(f"{FIRST}: {text}\n{SECOND}: D") in ("not-json", [(KEYS[0], "A"), (KEYS[1], "D")])
    assert time.process_time() - start < 2
