"""Documents: the facts that they state, and their labels."""

from __future__ import annotations

import random

from medteb_mteb.mini.cells import Cell
from medteb_mteb.mini.documents import build_document, join_phrases
from medteb_mteb.mini.labels import grade

HYPERTENSION = "condition:高血压"


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


def test_joined_phrases_keep_every_fact():
    for number in range(60):
        rng = random.Random(number)
        facts = ["盐要少放", "酒，尤其白酒", "腌菜"]
        for names in (True, False):
            for spoken in (True, False):
                joined = join_phrases(facts, names, spoken, rng)
                assert all(fact in joined for fact in facts)
