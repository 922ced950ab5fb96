"""Names of persons after a label or before a title; what only looks like a name stays."""

from __future__ import annotations

import pytest

from medteb_mteb.curation.anonymize.persons import PersonName


@pytest.fixture(scope="module")
def names():
    recogniser = PersonName()
    return lambda text: sorted({text[one.start : one.end] for one in recogniser.analyze(text, [])})


LABELLED = [
    ("患者王秀兰，女，54岁", ["王秀兰"]),
    ("姓名：欧阳明华，性别：男", ["欧阳明华"]),
    ("姓名：王 芳，女", ["王 芳"]),
    ("姓名：阿依古丽，女", ["阿依古丽"]),
    ("患者：張偉民，男", ["張偉民"]),
    ("联系人：李建国，陈志强，", ["李建国"]),
    ("患者王秀兰、李建国、陈志强，均已出院", ["王秀兰", "李建国", "陈志强"]),
    ("请张伟民医生会诊", ["张伟民"]),
    ("找刘主任看过", ["刘"]),
    ("找王国庆医生看过", ["王国庆"]),
    ("Name: Michael Johnson, male", ["Michael Johnson"]),
    ('{"patient_name": "Michael Johnson", "age": 58}', ["Michael Johnson"]),
]


@pytest.mark.parametrize(("text", "expected"), LABELLED)
def test_names_are_found_by_their_label_or_title_and_the_title_stays(names, text, expected):
    assert names(text) == sorted(expected)


@pytest.mark.parametrize("text", [text for text, _ in LABELLED])
def test_text_around_a_name_does_not_move_or_hide_it(text):
    recogniser = PersonName()
    before = "主诉：头痛三天。\n"
    alone = [(one.start, one.end) for one in recogniser.analyze(text, [])]
    inside = [(one.start, one.end) for one in recogniser.analyze(f"{before}{text}\n既往体健。", [])]
    assert alone
    assert inside == [(start + len(before), end + len(before)) for start, end in alone]


@pytest.mark.parametrize(
    "text",
    [
        "患者王某，男",
        "姓名：王某某",
        "老王说头痛",
        "患者因头痛入院",
        "姓名：不详",
        "高血压医生怎么看",
        "主任医师查房",
        "江苏医生建议手术",
        "找经验丰富的中医师傅进行治疗",
        "name: aspirin",
        "姓名：",
        "患者",
        "",
    ],
)
def test_masked_names_and_ordinary_words_are_not_names(names, text):
    assert names(text) == []
