"""Entities, their cells and their relations."""

from __future__ import annotations

from collections import Counter

import pytest

from medteb_mteb.mini.cells import GROUPED_INTENTS, INTENTS, SPECIAL_INTENT, Cell, seeded

HYPERTENSION = "condition:高血压"


def test_every_cell_has_facts_and_belongs_to_one_entity(world):
    assert list(world.cells) == sorted(set(world.cells))
    assert all(world.facts(cell) and all(world.facts(cell)) for cell in world.cells)
    assert sorted(cell for key in world.entities for cell in world.cells_of(key)) == list(world.cells)


def test_only_facts_that_differ_between_groups_are_asked_for_a_group(world):
    for cell in world.cells:
        kind = world.entities[cell.entity].kind
        assert cell.intent in (*INTENTS[kind], SPECIAL_INTENT)
        if cell.group and cell.intent != SPECIAL_INTENT:
            assert (kind, cell.intent in GROUPED_INTENTS) == ("condition", True)
            assert world.facts(cell) == world.facts(Cell(cell.entity, cell.intent))
        assert bool(cell.group) or cell.intent != SPECIAL_INTENT


def test_advice_for_a_group_is_that_of_the_table(world):
    entity = world.entities[HYPERTENSION]
    assert entity.special
    for group, phrases in entity.special.items():
        assert world.facts(Cell(HYPERTENSION, SPECIAL_INTENT, group)) == phrases


def test_a_condition_has_general_advice_for_at_most_one_young_group(world):
    groups = {
        (cell.entity, cell.group) for cell in world.cells if cell.group and cell.intent == GROUPED_INTENTS[0]
    }
    young = Counter(key for key, group in groups if group in {"婴幼儿", "儿童", "青少年"})
    assert young
    assert set(young.values()) == {1}
    # Those whose name says the group have no other one.
    assert not [key for key, _ in groups if any(word in key for word in ("小儿", "儿童", "妊娠"))]


def test_relations_are_mutual_and_neighbours_of_one_kind(world):
    for key in list(world.entities)[::7]:
        for other in world.neighbours[key]:
            assert key in world.neighbours[other]
            assert key.partition(":")[0] == other.partition(":")[0]
            assert world.related(key, other)
        assert key not in world.neighbours[key]
    drug = next(key for key in world.entities[HYPERTENSION].links if key.startswith("drug:"))
    assert world.related(HYPERTENSION, drug)
    assert world.related(drug, HYPERTENSION)
    assert drug not in world.neighbours[HYPERTENSION]


@pytest.mark.parametrize(
    ("intent", "phrase", "leaks"),
    [
        ("care", "戒酒", {"diet_avoid"}),
        ("care", "多喝水", {"diet_good"}),
        ("diet_avoid", "少喝酒", set()),  # its own question
        ("causes", "家族史", {"spread"}),
        ("prognosis", "拖延会累及肾脏", {"complications"}),
        ("care", "拖延会累及肾脏", set()),
        ("care", "按时休息", set()),
    ],
)
def test_words_that_answer_another_question_in_passing_are_found(world, intent, phrase, leaks):
    cell = Cell(HYPERTENSION, intent)
    assert world.leaks(cell, (phrase,)) == {Cell(HYPERTENSION, name) for name in leaks}


def test_names_of_drugs_and_departments_answer_what_they_name(world):
    entity = world.entities[HYPERTENSION]
    drug, department = entity.facts["drugs"][0], entity.facts["department"][0]
    found = world.leaks(Cell(HYPERTENSION, "treatment"), (f"服用{drug}", f"到{department}复诊"))
    assert {cell.intent for cell in found} == {"drugs", "department"}
    assert world.leaks(Cell(HYPERTENSION, "drugs"), (drug,)) == set()


def test_advice_names_a_group_but_a_cause_does_not(world):
    group = next(name for name in world.entities[HYPERTENSION].special if name in ("孕妇", "老年人"))
    word = {"孕妇": "孕期慎用", "老年人": "高龄者慎用"}[group]
    special = Cell(HYPERTENSION, SPECIAL_INTENT, group)
    assert special in world.leaks(Cell(HYPERTENSION, "treatment"), (word,))
    assert special not in world.leaks(Cell(HYPERTENSION, "causes"), (word,))


def test_ointments_are_external_and_scans_have_findings(world):
    drugs = {name: world.entities[f"drug:{name}"].external for name in ("卤米松", "二甲双胍")}
    assert drugs == {"卤米松": True, "二甲双胍": False}
    exams = {name: world.entities[f"exam:{name}"].findings for name in ("乳腺超声", "血尿酸", "骨密度")}
    assert exams == {"乳腺超声": True, "血尿酸": False, "骨密度": False}


def test_draws_depend_on_all_parts_of_their_seed():
    def draws(*parts):
        return [seeded(*parts).random() for _ in range(2)]

    assert draws("a", 1) == draws("a", "1")
    assert draws("a", 1)[0] == draws("a", 1)[1]
    others = [draws("a", 2), draws("b", 1), draws("a"), draws("a", 1, 0)]
    assert len({tuple(one) for one in [draws("a", 1), *others]}) == 5
