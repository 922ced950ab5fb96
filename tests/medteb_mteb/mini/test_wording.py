"""The wording files: enough alternatives of each intent and register, with the slots that are filled."""

from __future__ import annotations

from string import Formatter

from medteb_mteb.mini.cells import SPECIAL_INTENT
from medteb_mteb.mini.documents import REGISTERS
from medteb_mteb.mini.wording import (
    HELD_OUT_PATTERNS,
    card_wording,
    intent_wording,
    query_wording,
    register_wording,
    wording_of,
)

#: Slots of the templates of an intent.
SLOTS = {"titles": "ng", "heads": "g", "say": "nlg", "talk": "nlg", "ask": "tg", "sts": "tg"}


def slots(template):
    return {name for _, name, _, _ in Formatter().parse(template) if name is not None}


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


def test_scans_have_findings_where_blood_tests_have_values(world):
    scan, value = world.entities["exam:乳腺超声"], world.entities["exam:血尿酸"]
    assert not any("升高" in text or "箭头" in text for text in wording_of(scan, "high").ask)
    assert any("箭头" in text for text in wording_of(value, "high").ask)
    assert wording_of(scan, "purpose") is wording_of(value, "purpose")


def test_templates_have_no_slot_that_is_not_filled():
    for key, wording in intent_wording().items():
        for field, allowed in SLOTS.items():
            for template in getattr(wording, field):
                assert template.strip() == template != "", (key, field)
                assert slots(template) <= set(allowed), (key, template)
        assert all({"n", "l"} <= slots(template) for template in wording.say), key
        assert all("t" in slots(template) for template in (*wording.ask, *wording.sts)), key
        assert all(template.endswith("？") for template in wording.sts), key
        # Pairs of the STS ask for no group.
        assert key[1] == SPECIAL_INTENT or not any("g" in slots(template) for template in wording.sts), key


def test_patterns_are_either_shared_with_the_train_split_or_held_out():
    for wording in intent_wording().values():
        assert [*wording.shared, *wording.held_out] == list(range(len(wording.ask)))


def test_registers_name_the_entity_and_the_lay_word():
    for name, wording in register_wording().items():
        for field in ("open", "middle", "close", "word", "titles"):
            assert all(slots(template) <= {"n", "w"} for template in getattr(wording, field)), (name, field)
        assert all("w" in slots(template) for template in wording.word), name
        assert not [template for template in (*wording.middle, *wording.close) if slots(template)], name


def test_a_typo_replaces_one_character_by_another():
    typos = query_wording().typos
    assert len(typos) > 50
    assert all(len(right) == len(wrong) == 1 and right != wrong for right, wrong in typos.items())


def test_cards_have_prose_for_each_task():
    wording = card_wording()
    assert set(wording["about"]) == {"MedTEBRetrieval", "MedTEBReranking", "MedTEBSTS"}
    assert set(wording["grades"]) <= set(wording["about"])
    assert slots(wording["making"]) == {"tables"}
