from __future__ import annotations

import random
from collections import Counter

import pytest

from medteb_mteb.mini.cells import SPECIAL_INTENT, Cell
from medteb_mteb.mini.documents import REGISTERS, build_document, join_phrases
from medteb_mteb.mini.labels import grade
from medteb_mteb.mini.queries import build_query, fit, surfaces, usable_patterns
from medteb_mteb.mini.wording import HELD_OUT_PATTERNS, intent_wording, register_wording, wording_of

HYPERTENSION = "condition:高血压"


def document_about(world, cell, *, alone=True):
    """A document whose main question is ``cell`` and, if ``alone``, that answers nothing else."""
    for copy in range(200):
        document = build_document(world, cell, "test-documents", copy)
        if not alone or set(document.answers) == {cell}:
            return document
    raise AssertionError(f"no plain document for {cell}")


def test_registers_have_enough_wordings():
    assert len(REGISTERS) >= 6
    for name in REGISTERS:
        wording = register_wording()[name]
        assert len(set(wording.open)) >= 8
        assert len(set(wording.close)) >= 8


def test_intents_have_enough_wordings(world):
    for key, wording in intent_wording().items():
        assert len(set(wording.say)) >= 6, key
        assert len(set(wording.ask)) >= 12, key
        assert len(set(wording.sts)) >= 6, key
        assert len(wording.held_out) == HELD_OUT_PATTERNS
    asked = {(cell.entity.partition(":")[0], cell.intent) for cell in world.cells}
    assert asked <= set(intent_wording())


def test_the_same_arguments_give_the_same_document(world):
    cell = Cell(HYPERTENSION, "diet_avoid")
    assert build_document(world, cell, 1, 0) == build_document(world, cell, 1, 0)
    assert build_document(world, cell, 1, 0) != build_document(world, cell, 1, 1)


def test_a_document_contains_the_facts_of_its_cells_and_no_slots(world):
    rng = random.Random(0)
    for cell in rng.sample(world.cells, 300):
        document = build_document(world, cell, "facts")
        assert "{" not in document.text + document.title
        for answered, letter in document.answers.items():
            if letter == "S":
                assert any(fact in document.text for fact in world.facts(answered)), (answered, document.text)
        assert document.answers[cell] == "S"
        assert not [
            double for double in ("。。", "，，", "的的", "；。", "：：", "？？") if double in document.text
        ]


def test_labels_count_every_intent_whose_facts_a_document_states(world):
    """If a document states all facts of another intent, then its labels say so."""
    rng = random.Random(1)
    checked = 0
    for cell in rng.sample(world.cells, 400):
        document = build_document(world, cell, "leak")
        for other in world.cells_of(cell.entity):
            facts = world.facts(other)
            if other.intent in ("department", "exams", "drugs", "symptoms", "indication") or other.group:
                continue
            if all(fact in document.text for fact in facts) and any(len(fact) > 4 for fact in facts):
                checked += 1
                assert grade(world, other, document) in "SA", (other, document.text)
    assert checked > 100


@pytest.mark.parametrize(("intent", "wrong"), [("diet_good", "diet_avoid"), ("diet_avoid", "diet_good")])
def test_opposite_polarity_is_a_wrong_answer(world, intent, wrong):
    document = document_about(world, Cell(HYPERTENSION, wrong))
    assert grade(world, Cell(HYPERTENSION, wrong), document) == "S"
    assert grade(world, Cell(HYPERTENSION, intent), document) == "B"


def test_a_raised_value_does_not_answer_about_a_lowered_one(world):
    document = document_about(world, Cell("exam:血常规", "high"))
    assert grade(world, Cell("exam:血常规", "low"), document) == "B"


def test_groups_answer_the_general_question_in_part_and_each_other_not_at_all(world):
    groups = sorted({c.group for c in world.cells_of(HYPERTENSION) if c.intent == "diet_good" and c.group})
    special = sorted({c.group for c in world.cells_of(HYPERTENSION) if c.intent == SPECIAL_INTENT})
    general = document_about(world, Cell(HYPERTENSION, "diet_good"))
    assert groups
    grouped = document_about(world, Cell(HYPERTENSION, "diet_good", groups[0]))
    assert grade(world, Cell(HYPERTENSION, "diet_good"), grouped) == "A"
    assert grade(world, Cell(HYPERTENSION, "diet_good", groups[0]), general) == "A"
    assert grade(world, Cell(HYPERTENSION, "diet_good", "某某"), grouped) == "B"
    assert len(special) >= 2
    one = document_about(world, Cell(HYPERTENSION, SPECIAL_INTENT, special[0]))
    assert grade(world, Cell(HYPERTENSION, SPECIAL_INTENT, special[1]), one) == "B"


def test_other_subjects_never_answer(world):
    asked = Cell(HYPERTENSION, "drugs")
    letters = Counter()
    for cell in random.Random(2).sample(world.cells, 500):
        if cell.entity != asked.entity:
            letters[grade(world, asked, build_document(world, cell, "other"))] += 1
    assert set(letters) == {"C", "D"}


def test_joined_phrases_keep_every_fact():
    for number in range(60):
        rng = random.Random(number)
        facts = ["盐要少放", "酒，尤其白酒", "腌菜"]
        for names in (True, False):
            for spoken in (True, False):
                joined = join_phrases(facts, names, spoken, rng)
                assert all(fact in joined for fact in facts)


def test_questions_about_ointments_do_not_say_eat(world):
    cream = world.entities["drug:卤米松"]
    assert fit("{t}一天吃几次", cream) == "{t}一天用几次"
    assert fit("{t}一天吃几次", world.entities["drug:二甲双胍"]) == "{t}一天吃几次"


def test_scans_have_findings_where_blood_tests_have_values(world):
    scan, value = world.entities["exam:乳腺超声"], world.entities["exam:血尿酸"]
    assert not any("升高" in text or "箭头" in text for text in wording_of(scan, "high").ask)
    assert any("箭头" in text for text in wording_of(value, "high").ask)
    assert wording_of(scan, "purpose") is wording_of(value, "purpose")


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
