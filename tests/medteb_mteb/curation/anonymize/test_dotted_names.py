from __future__ import annotations

import pytest

from medteb_mteb.curation.anonymize.find import Finder


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("村医带着阿孜古丽·卡德尔和两个娃来打疫苗", "阿孜古丽·卡德尔"),
        ("患者阿卜杜拉・买买提因头痛入院", "阿卜杜拉・买买提"),
        ("约翰·史密斯病情平稳", "约翰·史密斯"),
    ],
)
def test_names_with_an_interpunct_are_found(text, name):
    assert [text[one.start : one.end] for one in Finder()(text)] == [name]


@pytest.mark.parametrize(
    "text",
    [
        "考虑埃勒斯·当洛斯综合征",
        "沃尔夫·帕金森·怀特综合征",
        "拟行达·芬奇机器人辅助手术",
        "内科·外科·儿科均可挂号",
    ],
)
def test_things_named_after_a_person_are_not_replaced(text):
    assert Finder()(text) == []
