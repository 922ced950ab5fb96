"""Cards of the packaged tasks: header, statistics and baselines."""

from __future__ import annotations

import json

import pytest
import yaml
from tests.medteb_mteb.mini.task_files import TASKS

from medteb_mteb.mini.card import measured, write_card


def test_cards_state_the_recorded_baselines(packaged):
    for task in TASKS:
        card = (packaged / task / "README.md").read_text("utf-8")
        assert measured()[task]
        for name, value in measured()[task].items():
            assert f"| {name} | {value} |" in card


def test_cards_say_that_the_data_is_synthetic_first(packaged):
    for task in TASKS:
        _, header, body = (packaged / task / "README.md").read_text("utf-8").split("---\n", 2)
        first = body.strip().splitlines()[0]
        assert "Synthetic" in first
        assert "not for ranking models" in first
        assert "license: apache-2.0" in header
        for line in header.splitlines():
            if line.strip().startswith("path: "):
                assert (packaged / task / line.split("path: ")[1]).is_file()


@pytest.mark.parametrize("task", TASKS)
def test_the_card_of_a_packaged_task_differs_from_a_new_one_in_its_statistics_alone(packaged, task):
    counts = json.loads((packaged / task / "manifest.json").read_text("utf-8"))["counts"]
    written = write_card(task, counts, {}, "TABLES").splitlines()
    card = (packaged / task / "README.md").read_text("utf-8").splitlines()
    assert [line for line in written if line not in card and "TABLES" not in line] == []
    added = [line for line in card if line not in written]
    start, end = card.index("## Statistics"), next(i for i, line in enumerate(card) if "conditions, " in line)
    assert all(start < card.index(line) <= end for line in added)


def test_the_header_is_yaml_with_the_splits_of_each_configuration():
    card = write_card("MedTEBReranking", {"queries": 3}, {"letters": "S 1, A 2"}, "12 conditions")
    _, header, body = card.split("---\n", 2)
    content = yaml.safe_load(header)
    assert (content["language"], content["task_categories"]) == (["zh"], ["text-ranking"])
    assert {
        config["config_name"]: [file["split"] for file in config["data_files"]]
        for config in content["configs"]
    } == {"default": ["test"], "corpus": ["test"], "queries": ["test"], "top_ranked": ["test"]}
    sts = yaml.safe_load(write_card("MedTEBSTS", {}, {}, "").split("---\n", 2)[1])
    (config,) = sts["configs"]  # one configuration of two splits
    assert [file["split"] for file in config["data_files"]] == ["train", "test"]
    assert "| queries | 3 |\n| letters | S 1, A 2 |\n" in body
    assert "12 conditions" in body


def test_counts_are_named_in_words():
    assert "| train queries | 7 |" in write_card("MedTEBRetrieval", {"train_queries": 7}, {}, "")
