"""Letters of queries and documents: which documents answer a question, in part or not at all."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from medteb_mteb.mini.cells import SPECIAL_INTENT, Cell
from medteb_mteb.mini.documents import Document, build_document
from medteb_mteb.mini.labels import grade

HYPERTENSION = "condition:高血压"


def document_about(world, cell, *, alone=True):
    """A document whose main question is ``cell`` and, if ``alone``, that answers nothing else."""
    for copy in range(200):
        document = build_document(world, cell, "test-documents", copy)
        if not alone or set(document.answers) == {cell}:
            return document
    raise AssertionError(f"no plain document for {cell}")


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


def graded(world, asked, *answered):
    """The letter for a document that answers the given intents of hypertension."""
    answers = {Cell(HYPERTENSION, *one): "S" for one in answered}
    return grade(world, Cell(HYPERTENSION, *asked), Document("", "", HYPERTENSION, "qa", answers))


@pytest.mark.parametrize(
    ("asked", "answered", "letter"),
    [
        (("causes",), ("causes",), "S"),
        (("causes",), ("care",), "B"),
        (("treatment",), ("drugs",), "A"),  # the drugs are a part of the treatment
        (("drugs",), ("treatment",), "B"),
        (("care", "老年人"), ("care",), "A"),
        (("care",), ("care", "老年人"), "A"),
        (("care", "孕妇"), ("care", "老年人"), "B"),
        ((SPECIAL_INTENT, "孕妇"), (SPECIAL_INTENT, "老年人"), "B"),
        ((SPECIAL_INTENT, "孕妇"), ("treatment",), "B"),
    ],
)
def test_a_document_is_graded_by_the_question_and_the_group_it_answers(world, asked, answered, letter):
    assert graded(world, asked, answered) == letter


def test_an_answer_in_part_keeps_its_letter_beside_other_answers(world):
    answers = {Cell(HYPERTENSION, "care"): "S", Cell(HYPERTENSION, "causes"): "A"}
    document = Document("", "", HYPERTENSION, "qa", answers)
    assert [grade(world, cell, document) for cell in answers] == ["S", "A"]
    assert graded(world, ("treatment",), ("care",), ("drugs",)) == "A"


def test_a_document_about_a_related_subject_is_nearer_than_any_other(world):
    document = Document("", "", HYPERTENSION, "qa", {Cell(HYPERTENSION, "causes"): "S"})
    near = world.neighbours[HYPERTENSION][0]
    far = next(key for key in world.entities if not world.related(key, HYPERTENSION) and key != HYPERTENSION)
    assert [grade(world, Cell(key, "causes"), document) for key in (near, far)] == ["C", "D"]
