"""Answers of an LLM that a form accepts or rejects."""

from __future__ import annotations

import json

import pytest

from medteb_mteb.curation.llm import Rejected
from medteb_mteb.curation.relatives import forms


def test_invisible_characters_of_an_answer_are_removed():
    content = json.dumps({"question": "Which\u202e drug helps?"})
    answer = forms.read_answer("question", {"abstract": "x"}, content)
    assert answer == {"question": "Which drug helps?"}


@pytest.mark.parametrize(
    ("name", "shown", "answer", "reason"),
    [
        ("question", {"abstract": "Does it? Yes."}, {"question": "does it?"}, "copied"),
        ("sentences", {"text": "x"}, {"sentence1": "One  is.", "sentence2": "one is."}, "same-sentence"),
        ("answer", {"question": "q", "answer": "Rest."}, {"answer": "rest."}, "copied"),
        ("answer", {"question": "q", "answer": "Rest."}, {"answer": "\ud800"}, ""),
    ],
)
def test_answers_that_the_task_cannot_use_are_rejected(name, shown, answer, reason):
    if not reason:
        assert forms.read_answer(name, shown, json.dumps(answer)) == {"answer": "?"}
        return
    with pytest.raises(Rejected) as rejected:
        forms.read_answer(name, shown, json.dumps(answer))
    assert rejected.value.reason == reason
