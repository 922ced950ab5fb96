"""Prompts whose texts decide which answer they get, and rejections whose reasons are counted."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import pytest

from medteb_mteb.curation.llm.database import settings_digest
from medteb_mteb.curation.llm.journal import Answer
from medteb_mteb.curation.llm.prompt import Prompt, Rejected
from medteb_mteb.curation.llm.readings import Readings, by_answer

SETTINGS = settings_digest({"model": "m"})
PROMPT = Prompt("a", "系统", "问", {"type": "object"}, 5)


@pytest.mark.parametrize(
    ("changes", "answers"),
    [
        ({}, 1),
        ({"schema": {"type": "array"}}, 1),
        ({"answer_tokens": 900}, 1),
        ({"variant": "1"}, 2),
        ({"system": "别的"}, 2),
        ({"user": "另问"}, 2),
    ],
)
def test_prompts_of_the_same_texts_and_variant_share_an_answer(changes, answers):
    assert len(by_answer([PROMPT, replace(PROMPT, key="b", **changes)], SETTINGS)) == answers


def test_a_rejection_fails_the_prompt_with_its_reason_and_no_other():
    def read(prompt, text):
        if prompt.key == "b":
            raise Rejected("missing-key")
        return text

    prompts = by_answer([PROMPT, replace(PROMPT, key="b")], SETTINGS)
    (key,) = prompts
    readings = Readings(prompts, read)
    reason = readings.take(key, Answer(0, "", "答"))
    readings.fail(key, reason)
    assert (reason, readings.good, readings.failed) == ("missing-key", {"a": "答"}, {"b": "missing-key"})


def test_a_prompt_that_was_planned_does_not_change():
    with pytest.raises(FrozenInstanceError):
        PROMPT.user = "另问"
