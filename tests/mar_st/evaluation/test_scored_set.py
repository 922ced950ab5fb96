"""Tests of the settings of a set that models are scored on."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from mar_st.evaluation.scored_set import Task


@pytest.mark.parametrize("name", ["faq", "2024-faq.v1", "0"])
def test_names_of_small_letters_digits_dots_and_hyphens_are_taken(name):
    assert Task(name=name, path="folder").name == name


@pytest.mark.parametrize("name", ["", "FAQ", "问答", "-faq", ".faq", "a b", "a/b", "../a", "a_b", "faq\n"])
def test_names_that_could_not_be_a_file_name_everywhere_are_refused(name):
    with pytest.raises(ValidationError, match="name"):
        Task(name=name, path="folder")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"type": "classification"}, "type"),
        ({"splits": "test"}, "splits"),  # a misspelt setting has no effect
        ({"path": None}, "path"),
        ({"metric": 3}, "metric"),
    ],
)
def test_settings_that_are_misspelt_or_of_another_type_are_refused(settings, message):
    with pytest.raises(ValidationError, match=message):
        Task(**{"name": "faq", "path": "folder", **settings})


def test_a_task_is_read_from_what_it_writes_and_never_changes():
    task = Task(name="faq", path="folder", metric="map", prompt="query")
    assert Task.model_validate_json(task.model_dump_json()) == task
    with pytest.raises(ValidationError, match="frozen"):
        task.split = "dev"


def test_the_schema_says_which_paths_there_are():
    path = Task.model_json_schema()["properties"]["path"]
    assert "'package:NAME/FOLDER'" in path["description"]
