from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from medteb_mteb.curation.judge.schema import answer_schema, read_answer

PLAIN = ("Passage-0", "Passage-1", "Passage-2")
TAGGED = ("Passage-0-k7f", "Passage-1-b2c", "Passage-2-x9d")

STYLES = json.loads((Path(__file__).parent / "answer_styles.json").read_text("utf-8"))


def answer(keys, letters, **more):
    return json.dumps({**dict(zip(keys, letters, strict=True)), **more})


@pytest.mark.parametrize("keys", [PLAIN, TAGGED])
def test_a_good_answer_gives_every_passage_its_grade(keys):
    verdict = read_answer(answer(keys, "SBD"), keys)
    assert verdict.grades == {0: "S", 1: "B", 2: "D"}
    assert (verdict.missing, verdict.whole) == ({}, "")


@pytest.mark.parametrize(
    "wrapped",
    ["```json\n{}\n```", "结果如下：\n```\n{}\n```\n以上。", "<think>先看第一段 {{…}}</think>\n{}", " {}\n"],
)
def test_text_around_an_answer_is_ignored(wrapped):
    assert read_answer(wrapped.format(answer(TAGGED, "SSS")), TAGGED).grades == {0: "S", 1: "S", 2: "S"}


@pytest.mark.parametrize("letter", ["a", " A ", "Ａ", "ａ"])
def test_lower_case_full_width_and_padded_letters_are_read(letter):
    assert read_answer(answer(PLAIN, ["S", letter, "D"]), PLAIN).grades[1] == "A"


@pytest.mark.parametrize(
    "letter", ["E", "SS", "", None, 1, True, ["A", "B"], {"was": "A"}, "A passage", "A/B", []]
)
def test_a_wrong_letter_loses_only_its_own_passage(letter):
    verdict = read_answer(answer(PLAIN, ["S", letter, "D"]), PLAIN)
    assert verdict.grades == {0: "S", 2: "D"}
    assert verdict.missing == {1: "letter"}
    assert verdict.whole == ""


def test_a_missing_passage_loses_only_itself():
    verdict = read_answer(answer(TAGGED[:2], "SB"), TAGGED)
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
        (answer(TAGGED, "SBD")[:-1] + ', "Passage-0-k7f": "S"}', "duplicate"),
        (answer(TAGGED, "SBD") + answer(TAGGED, "SBC"), "duplicate"),
        (answer(TAGGED, "SBD")[:-3], "not-json"),
        ('["S", "B", "D"]', "not-an-object"),
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
    verdict = read_answer(content, TAGGED)
    assert (verdict.whole, verdict.grades) == (reason, {})
    assert verdict.missing == {0: reason, 1: reason, 2: reason}


@pytest.mark.parametrize("style", STYLES["answers"], ids=lambda style: f"{style['style']}-{style['name']}")
def test_answers_of_every_style_are_read_or_rejected(style):
    keys = style.get("keys", STYLES["keys"])
    verdict = read_answer(style["content"], keys, cut=style.get("finish") == "length")
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
    read = 0
    for seed in range(2000):
        draw = random.Random(seed)
        grades = {key: draw.choice("SABCD") for key in TAGGED}
        text = damaged(draw.choice(FORMS)(grades), draw)
        answer_grades = read_answer(text, TAGGED).grades
        read += len(answer_grades)
        assert {number: grades[TAGGED[number]] for number in answer_grades} == answer_grades, text
    assert read > 3000  # many can be read all the same


def test_a_repair_that_moves_a_grade_is_refused():
    """`json-repair` would give the first passage the grade of the second."""
    entries = '{"id": "Passage-0-k7f", "grade":{ "S}, {"id": "Passage-1-b2c", "grade": "C"}'
    verdict = read_answer(f'[{entries}, {{"id": "Passage-2-x9d", "grade": "A"}}]', TAGGED)
    assert (verdict.whole, verdict.grades) == ("not-json", {})


def test_refused_and_incomplete_answers_are_rejected_with_the_reason():
    assert read_answer(answer(PLAIN, "SBD"), PLAIN, refused=True).whole == "refused"
    assert read_answer(answer(PLAIN, "SBD")[:-3], PLAIN, cut=True).whole == "cut"
    assert read_answer(answer(PLAIN, "SBD"), PLAIN, cut=True).grades  # all was said


def test_plain_keys_cannot_reveal_swapped_passages():
    """Tags reveal swapped passage numbers; without tags a swap is invisible."""
    assert read_answer(answer(("Passage-1", "Passage-0", "Passage-2"), "SBD"), PLAIN).grades[1] == "S"


def test_a_single_passage_may_do_without_its_tag():
    assert read_answer('{"Passage-0": "A"}', ("Passage-0-k7f",)).grades == {0: "A"}
    assert read_answer('{"Passage-0": "A"}', ("Passage-0",)).grades == {0: "A"}
    assert read_answer('{"Passage-1": "A"}', ("Passage-0-k7f",)).whole == "invented"
    both = '{"Passage-0": "A", "Passage-0-k7f": "D"}'
    assert read_answer(both, ("Passage-0-k7f",)).whole == "duplicate"


def test_the_schema_accepts_good_answers():
    schema = answer_schema(TAGGED)
    assert schema["required"] == list(TAGGED) == list(schema["properties"])
    assert schema["additionalProperties"] is False
    assert schema["properties"]["Passage-0-k7f"]["enum"] == list("SABCD")
