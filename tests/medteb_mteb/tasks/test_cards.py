from __future__ import annotations

import mteb

from medteb_mteb.english.table import english_tasks
from medteb_mteb.tasks import REPLACED, TASKS
from medteb_mteb.tasks.cards import cards_page, task_cards


def test_every_task_of_the_registry_has_a_card():
    cards = {card.name: card for card in task_cards()}
    assert set(cards) == {task.metadata.name for task in (*TASKS, *REPLACED.values())}
    for name, card in cards.items():
        metadata = mteb.get_task(name).metadata
        assert card.type == metadata.type
        assert card.checks.verified
        assert card.checks.not_verified
        assert not card.revision or card.revision == metadata.dataset["revision"]
    assert cards["CmedqaRetrieval"].revision == "c476f85bf03d6642ec66bf54b9a551c88108bbb4"
    assert cards["MedExamRetrieval"].revision == ""
    assert cards["MedExamRetrieval"].licence == "apache-2.0"


def test_no_card_names_a_source_that_does_not_exist():
    """`medteb/NAME` stands in mteb's metadata for data that are on no Hub."""
    for card in task_cards():
        assert "medteb/" not in card.source.lower().replace("huggingface.co/datasets/mteb/", ""), card.name
        assert card.source.startswith("[") or not card.revision
    cards = {card.name: card for card in task_cards()}
    assert "github.com/pubmedqa/pubmedqa" in cards["PubMedQA500Retrieval"].source
    assert cards["NFCorpus"].source.startswith("[mteb/")


def test_tasks_of_english_medteb_have_the_licence_and_checks_of_their_source():
    cards = {card.name: card for card in task_cards()}
    groups = {}
    for name, task in english_tasks().items():
        assert cards[name].source.startswith(task.source)
        assert cards[name].licence == task.licence
        groups.setdefault(cards[name].checks.title, set()).add(task.source)
    assert groups == {
        "English MedTEB, from public files": {"MedMCQA", "MedQA", "MedQuAD"},
        "English MedTEB, from MIMIC-IV": {"MIMIC-IV"},
        "English MedTEB, from services on the Internet": {
            "ClinicalTrials.gov", "PMC", "PubMed", "Wikipedia", "bioRxiv", "medRxiv",
        },
    }  # fmt: skip
    assert cards["pairclassification_medmcqa_pair_classification"].licence == "mit"
    assert cards["classification_mimiciv_readmission_3_days"].licence.startswith("PhysioNet Credentialed")


def test_the_page_shows_every_card_under_its_group():
    page = cards_page()
    for card in task_cards():
        row = f"| `{card.name}` | {card.type} | {card.source} |"
        assert page.count(row) == 1
        assert page.index(f"## {card.checks.title}") < page.index(row)
