"""Queries as patients type them."""

from __future__ import annotations

import random

from medteb_mteb.mini.cells import Cell
from medteb_mteb.mini.queries import build_query, fit, surfaces, usable_patterns
from medteb_mteb.mini.wording import intent_wording, query_wording

HYPERTENSION = "condition:高血压"


def test_questions_about_ointments_do_not_say_eat(world):
    cream = world.entities["drug:卤米松"]
    assert fit("{t}一天吃几次", cream) == "{t}一天用几次"
    assert fit("{t}一天吃几次", world.entities["drug:二甲双胍"]) == "{t}一天吃几次"


def test_queries_always_name_their_subject(world):
    rng = random.Random(3)
    for cell in rng.sample(world.cells, 400):
        entity = world.entities[cell.entity]
        term, kind = rng.choice(surfaces(entity))
        index = rng.choice(usable_patterns(entity, cell.intent, term, kind, range(12)))
        query = build_query(world, cell, term, kind, index, "named")
        # A typo changes one character at most.
        kept = sum(query.text.count(char) > 0 for char in term)
        assert kept >= len(term) - 1, query
        assert "{" not in query.text


def test_clause_like_lay_words_come_first(world):
    entity = world.entities[HYPERTENSION]
    lay = next(term for term in entity.lay if len(term) >= 5)
    ask = intent_wording()["condition", "drugs"].ask
    for index in usable_patterns(entity, "drugs", lay, "lay", range(len(ask))):
        assert ask[index].startswith("{t}")
    assert len(usable_patterns(entity, "drugs", "高血压", "name", range(len(ask)))) == len(ask)


def queries(world, cell, index, count=300):
    return [build_query(world, cell, "高血压", "name", index, "test", number) for number in range(count)]


def test_the_same_arguments_give_the_same_query(world):
    cell = Cell(HYPERTENSION, "drugs")
    first = queries(world, cell, 0)
    assert queries(world, cell, 0) == first
    assert len({query.text for query in first}) > 50
    assert {query.pair for query in first} == {("高血压", "condition.drugs.0")}


def test_a_question_for_a_group_names_the_group(world):
    group = next(
        cell.group for cell in world.cells_of(HYPERTENSION) if cell.group and cell.intent == "causes"
    )
    names = world.groups[group].lay
    for index in range(4):
        for query in queries(world, Cell(HYPERTENSION, "causes", group), index, 50):
            assert any(name in query.text for name in names), query.text


def test_half_of_a_choice_is_never_dropped(world):
    ask = intent_wording()["condition", "treatment"].ask
    (index,) = [place for place, pattern in enumerate(ask) if "有没有" in pattern]
    assert all("有没有" in query.text for query in queries(world, Cell(HYPERTENSION, "treatment"), index))


def test_some_queries_have_a_typo_and_no_more_than_two(world):
    wording = query_wording()
    wrong = set(wording.typos.values())
    ask = intent_wording()["condition", "drugs"].ask[0]  # 吃 and 药 have typos
    frame = "".join((*wording.leads, *wording.tails))
    counts = [
        sum(char in wrong and char not in ask + "高血压" + frame for char in query.text)
        for query in queries(world, Cell(HYPERTENSION, "drugs"), 0)
    ]
    assert 0.02 < sum(count > 0 for count in counts) / len(counts) < 0.3
    assert max(counts) <= 2


def test_every_way_to_name_an_entity_has_its_kind(world):
    entity = world.entities[HYPERTENSION]
    kinds = dict(surfaces(entity))
    assert kinds[entity.name] == "name"
    assert {term for term, kind in kinds.items() if kind == "alias"} == set(entity.aliases)
    assert {term for term, kind in kinds.items() if kind == "lay"} == set(entity.lay)
