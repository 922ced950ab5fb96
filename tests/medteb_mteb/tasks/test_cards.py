from __future__ import annotations

import mteb

from medteb_mteb.tasks import REPLACED, TASKS
from medteb_mteb.tasks.cards import CHECKS_BY_MODULE, cards_page, task_cards


def test_every_task_of_the_registry_has_a_card():
    cards = {card.name: card for card in task_cards()}
    assert set(cards) == {task.metadata.name for task in (*TASKS, *REPLACED.values())}
    for name, card in cards.items():
        metadata = mteb.get_task(name).metadata
        assert card.type == metadata.type
        assert card.checks.verified
        assert card.checks.not_verified
        assert card.source
        assert not card.revision or card.revision == metadata.dataset["revision"]
    assert cards["CmedqaRetrieval"].revision == "c476f85bf03d6642ec66bf54b9a551c88108bbb4"
    assert cards["MedExamRetrieval"].revision == ""
    assert cards["MedExamRetrieval"].licence == "apache-2.0"


def test_the_page_shows_every_card_under_its_group():
    page = cards_page()
    for card in task_cards():
        row = f"| `{card.name}` | {card.type} | `{card.source}` |"
        assert page.count(row) == 1
        assert page.index(f"## {card.checks.title}") < page.index(row)
    assert set(CHECKS_BY_MODULE) >= {type(mteb.get_task(card.name)).__module__ for card in task_cards()}
