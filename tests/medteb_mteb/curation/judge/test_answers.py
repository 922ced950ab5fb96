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


def answer(keys, letters):
    return json.dumps(dict(zip(keys, letters, strict=True)))


@pytest.mark.parametrize(
    ("value", "grade"),
    [
        *[(value, "A") for value in ("A", "a", "Ａ", " A级 ", "**A**", "`A`", "“A”", "【A】", "A档", "A.")],
        *[(value, "B") for value in ("等级：B", "Grade: B", "grade is B", "相关程度为B", "SCORE=B")],
        *[(value, "B") for value in ("评级 **B**", "label “B”", "Rating b.")],
        *[(value, "D") for value in ("D（与查询无关）", "D: unrelated", "D - 无关", "D，因为主体不同")],
        *[(value, None) for value in ("A passage", "a. first of all", "A/B", "4", "相关", "", "E")],
        *[(value, None) for value in ("A 或 B", "A，到 B", "介于 S 与 A", "A (B级)", "A or B", "S、A")],
        *[(value, None) for value in ("S：完全回答，A：部分回答", "A! 不，B!", "A（B？）")],
        *[(value, None) for value in (None, 1, True, float("nan"), {}, [], ["A", "B"], [["A"], "A"])],
        (["A"], "A"),
        ([["A"]], "A"),
    ],
)  # fmt: skip
def test_a_value_states_one_grade_or_none(value, grade):
    assert letter(value) == grade


def test_a_wrong_letter_and_a_missing_passage_lose_only_themselves():
    verdict = read(answer(TAGGED[:2], "SX"), TAGGED)
    assert (verdict.grades, verdict.missing) == ({0: "S"}, {1: "letter", 2: "missing"})


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (answer(("Passage-1-k7f", "Passage-2-b2c", "Passage-3-x9d"), "SBD"), "swapped"),
        (answer((f"Passage-{'9' * 5000}", *TAGGED[1:]), "SBD"), "invented"),
        ("[" * 100_000, "not-json"),
        (None, "empty"),
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
    assert read(answer(TAGGED, "SBD"), TAGGED, "refused").whole == "refused"
    assert read("blocked", TAGGED, "filtered").whole == "filtered"
    assert read(answer(TAGGED, "SBD")[:-3], TAGGED, "cut").whole == "cut"
    assert read(answer(TAGGED, "SBD"), TAGGED, "cut").grades  # all was said


@pytest.mark.parametrize("around", ["grade{}x", "A{}x", "等级为{}x", "A级{}x", "{}x"])
def test_a_long_run_of_marks_is_read_at_once(around):
    """Judges that get stuck repeat a blank until their tokens are used up."""
    start = time.process_time()
    for run in (" ", "*", '"', "\t*", " |", ">", "：", "级"):
        text = around.format(run * 60_000)
        assert letter(text) in (None, "A")
        assert read(f"{FIRST}: {text}\n{SECOND}: D", KEYS).grades in ({}, {0: "A", 1: "D"})
    assert time.process_time() - start < 2
