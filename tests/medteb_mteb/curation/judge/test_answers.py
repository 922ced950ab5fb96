"""Grades that are read from the answer of a judge, and the passages that they belong to."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from medteb_mteb.curation.judge.answers import letter, read_answer
from medteb_mteb.curation.llm.generate import read_answer as parse
from medteb_mteb.curation.llm.journal import Answer
from medteb_mteb.curation.llm.tolerant import Rejected

PLAIN = ("Passage-0", "Passage-1", "Passage-2")
TAGGED = ("Passage-0-k7f", "Passage-1-b2c", "Passage-2-x9d")
KEYS = (FIRST, SECOND) = TAGGED[:2]

STYLES = json.loads((Path(__file__).parent / "answer_styles.json").read_text("utf-8"))


def read(content, keys, ending=""):
    """What an answer says, and the reason why it is rejected."""
    try:
        given = Answer(content or "", ending)
        verdict = parse(None, given, lambda _, text: read_answer(text, keys, {}))
    except Rejected as error:
        return SimpleNamespace(grades={}, missing={}, whole=error.reason)
    return SimpleNamespace(grades=verdict.grades, missing=verdict.missing, whole="")


def answer(keys, letters, **more):
    return json.dumps({**dict(zip(keys, letters, strict=True)), **more})


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
    "content",
    [
        f'{{"{FIRST}": "A", "{SECOND}": "D"}}',
        f'{{"grades": {{"{FIRST}": "A级", "{SECOND}": "D"}}, "note": "两段主体不同"}}',
        f'{{"{FIRST}": "A"}}\n{{"{SECOND}": "D"}}',
        f'[{{"id": "{FIRST}", "grade": "A"}}, {{"id": "{SECOND}", "grade": "D"}}]',
        f'[{{"段落": "{FIRST}", "等级": "A", "reason": "部分回答"}}, {{"段落": "{SECOND}", "等级": "D"}}]',
        f'{{"{FIRST}": {{"grade": "A", "reason": "一部分"}}, "{SECOND}": {{"grade": "D"}}}}',
        f"{FIRST}: A\n{SECOND}：D级",
        f"1. **{FIRST}** → A\n2. **{SECOND}** → D",
        f"| 段落 | 等级 | 理由 |\n|---|---|---|\n| {FIRST} | A | 部分 |\n| {SECOND} | D | 无关 |",
        f"<think>{FIRST} 也许是 S</think>{{'{FIRST}': 'A', '{SECOND}': 'D',}}",
    ],
)
def test_every_form_of_an_answer_claims_the_same(content):
    assert read(content, KEYS).grades == {0: "A", 1: "D"}


@pytest.mark.parametrize(
    "letter", ["E", "SS", "", None, 1, True, ["A", "B"], {"was": "A"}, "A passage", "A/B", []]
)
def test_a_wrong_letter_loses_only_its_own_passage(letter):
    verdict = read(answer(PLAIN, ["S", letter, "D"]), PLAIN)
    assert verdict.grades == {0: "S", 2: "D"}
    assert verdict.missing == {1: "letter"}
    assert verdict.whole == ""


def test_a_missing_passage_loses_only_itself():
    verdict = read(answer(TAGGED[:2], "SB"), TAGGED)
    assert verdict.grades == {0: "S", 1: "B"}
    assert verdict.missing == {2: "missing"}


def _tags(*numbers):
    tags = [key.rpartition("-")[2] for key in TAGGED]
    return [f"Passage-{number}-{tags[i]}" for i, number in enumerate(numbers)]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (answer(PLAIN, "SBD"), "untagged"),
        (answer(_tags(1, 0, 2), "SBD"), "swapped"),
        (answer(_tags(1, 2, 0), "SBD"), "swapped"),
        (answer(_tags(1, 2, 3), "SBD"), "swapped"),
        (answer(TAGGED, "SBD", **{"Passage-3-zzz": "S"}), "invented"),
        (answer(("Passage-0-qqq", *TAGGED[1:]), "SBD"), "invented"),
        (answer((f"Passage-{'9' * 5000}", *TAGGED[1:]), "SBD"), "invented"),
        (answer(TAGGED, "SBD")[:-1] + ', "Passage-0-k7f": "D"}', "duplicate"),
        (answer(TAGGED, "SBD") + answer(TAGGED, "SBC"), "duplicate"),
        (answer(TAGGED, "SBD")[:-3], "not-json"),
        ('["S", "B", "D"]', "not-json"),
        ("[" * 100_000, "not-json"),
        ("抱歉，我无法提供医疗建议。", "refused"),
        ("I'm sorry, but I can't help with that.", "refused"),
        ("三个段落都很相关。", "not-json"),
        ("", "empty"),
        (None, "empty"),
        ("  \n", "empty"),
    ],
)
def test_an_untrustworthy_answer_is_rejected(content, reason):
    verdict = read(content, TAGGED)
    assert (verdict.whole, verdict.grades) == (reason, {})


@pytest.mark.parametrize("style", STYLES["answers"], ids=lambda style: f"{style['style']}-{style['name']}")
def test_answers_of_every_style_are_read_or_rejected(style):
    keys = style.get("keys", STYLES["keys"])
    verdict = read(style["content"], keys, "cut" if style.get("finish") == "length" else "")
    if "refused" in style:
        assert (verdict.whole, verdict.grades) == (style["refused"], {})
    else:
        assert verdict.whole == ""
        assert {str(number): grade for number, grade in verdict.grades.items()} == style["grades"]


FORMS = (
    json.dumps,
    lambda grades: json.dumps(grades, indent=1),
    lambda grades: json.dumps([{"id": key, "grade": grade} for key, grade in grades.items()]),
    lambda grades: json.dumps(
        {key: {"grade": g, "reason": "因为"} for key, g in grades.items()}, ensure_ascii=False
    ),
    lambda grades: json.dumps({"grades": grades}),
    str,
    lambda grades: "\n".join(json.dumps({key: grade}) for key, grade in grades.items()),
    lambda grades: "\n".join(f"{key}: {grade}" for key, grade in grades.items()),
)
STRUCTURE = "\"'{}[]:,\n \\“”：，*`|"


def damaged(text, draw):
    """A text with marks of its structure taken out, put in or changed; keys and letters stay."""
    for _ in range(draw.choice([1, 1, 2, 3, 5, 8])):
        places = [place for place, character in enumerate(text) if character in STRUCTURE]
        place, kind = draw.choice(places), draw.random()
        mark = draw.choice(STRUCTURE) if kind > 0.5 else ""
        text = text[:place] + mark + text[place + (kind <= 0.75) :]
    return text


@pytest.mark.thorough
def test_no_damage_moves_a_grade_to_another_passage():
    number = 0
    for seed in range(2000):
        draw = random.Random(seed)
        grades = {key: draw.choice("SABCD") for key in TAGGED}
        text = damaged(draw.choice(FORMS)(grades), draw)
        answer_grades = read(text, TAGGED).grades
        number += len(answer_grades)
        assert {number: grades[TAGGED[number]] for number in answer_grades} == answer_grades, text
    assert number > 3000  # many can be read all the same


def test_refused_and_incomplete_answers_are_rejected_with_the_reason():
    assert read(answer(PLAIN, "SBD"), PLAIN, "refused").whole == "refused"
    assert read("blocked", PLAIN, "filtered").whole == "filtered"
    assert read(answer(PLAIN, "SBD")[:-3], PLAIN, "cut").whole == "cut"
    assert read(answer(PLAIN, "SBD"), PLAIN, "cut").grades  # all was said


def test_a_single_passage_may_do_without_its_tag():
    assert read('{"Passage-0": "A"}', ("Passage-0-k7f",)).grades == {0: "A"}
    assert read('{"Passage-0": "A"}', ("Passage-0",)).grades == {0: "A"}
    assert read('{"Passage-1": "A"}', ("Passage-0-k7f",)).whole == "invented"
    both = '{"Passage-0": "A", "Passage-0-k7f": "D"}'
    assert read(both, ("Passage-0-k7f",)).whole == "duplicate"


def test_thoughts_that_were_cut_are_no_answer():
    content = f'<think>{{"{FIRST}": "A", "{SECOND}": "D"}}'
    assert read(content, KEYS, "cut").whole == "cut"
    assert read(content, KEYS).grades == {0: "A", 1: "D"}
    assert read(f"也许{content[7:]}？不对。</think>", KEYS).grades == {}


@pytest.mark.parametrize("around", ["grade{}x", "A{}x", "等级为{}x", "A级{}x", "{}x"])
def test_a_long_run_of_marks_is_read_at_once(around):
    """Judges that get stuck repeat a blank until their tokens are used up."""
    start = time.process_time()
    for run in (" ", "*", '"', "\t*", " |", ">", "：", "级"):
        text = around.format(run * 60_000)
        assert letter(text) in (None, "A")
        assert read(f"{FIRST}: {text}\n{SECOND}: D", KEYS).grades in ({}, {0: "A", 1: "D"})
    assert time.process_time() - start < 2
