from __future__ import annotations

from dataclasses import replace

import pytest

from medteb_mteb.mini.knowledge import KnowledgeError, _value, load_knowledge, problems_of


def test_tables_are_large_enough():
    kb = load_knowledge()
    assert len(kb.conditions) >= 150
    assert len(kb.drugs) >= 120
    assert len(kb.symptoms) >= 150
    assert len(kb.exams) >= 60
    assert len(kb.departments) >= 30
    assert {group.name for group in kb.groups} >= {"儿童", "孕妇", "老年人", "哺乳期女性", "婴幼儿"}


def test_packaged_tables_have_no_problems():
    assert list(problems_of(load_knowledge())) == []


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("symptoms", ("没有这个症状",), "not in symptoms"),
        ("department", "没有这个科", "not in departments"),
        ("drugs", ("没有这个药",), "not in drugs"),
        ("special", {"外星人": "无"}, "not in groups"),
    ],
)
def test_dangling_references_are_named(field, value, message):
    kb = load_knowledge()
    broken = replace(kb.conditions[0], **{field: value})
    problems = list(problems_of(replace(kb, conditions=(broken, *kb.conditions[1:]))))
    assert len(problems) == 1
    assert broken.name in problems[0]
    assert message in problems[0]


def test_lay_terms_must_be_unique_and_must_not_give_the_name_away():
    kb = load_knowledge()
    first, second = kb.conditions[:2]
    shared = replace(first, lay=(second.lay[0],))
    telling = replace(first, lay=(f"得了{first.name}",))
    for broken, message in ((shared, "belongs to both"), (telling, "contains a name")):
        problems = list(problems_of(replace(kb, conditions=(broken, *kb.conditions[1:]))))
        assert any(message in problem for problem in problems)


def test_wrong_types_are_refused_with_file_and_field():
    with pytest.raises(KnowledgeError, match=r"conditions\.jsonl line 3 lay: expected Phrases, got '头疼'"):
        _value("头疼", "Phrases", "knowledge/conditions.jsonl line 3 lay")


def test_phrases_can_be_joined_by_a_template():
    kb = load_knowledge()
    for row in kb.conditions:
        for phrases in (
            row.causes,
            row.treatment,
            row.diet_good,
            row.diet_avoid,
            row.care,
            row.complications,
        ):
            assert not [phrase for phrase in phrases if phrase[-1] in "。；，、" or "\n" in phrase]
