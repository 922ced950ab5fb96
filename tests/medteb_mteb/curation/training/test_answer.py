from __future__ import annotations

import json

import pytest

from medteb_mteb.curation.llm import Rejected
from medteb_mteb.curation.training.answer import Lists, read_lists
from medteb_mteb.curation.training.prompt import document_ids

IDS = document_ids(4)


def answer(positive, negative):
    return json.dumps({"positive_document": positive, "negative_document": negative})


@pytest.mark.parametrize(
    ("content", "lists"),
    [
        (answer(["doc-2"], ["doc-1", "doc-3", "doc-4"]), Lists((1,), (0, 2, 3))),
        (answer(["doc-1", "doc-2", "doc-3", "doc-4"], []), Lists((0, 1, 2, 3), ())),
        # A repeated id counts once, one that is left out has no label.
        (answer(["doc-3", "doc-3"], ["doc-1"]), Lists((2,), (0,), (1, 3))),
        (answer([" Doc-4"], ["ｄｏｃ-2 "]), Lists((3,), (1,), (0, 2))),
        ("当然：\n```json\n" + answer([], ["doc-1"]) + "\n```", Lists((), (0,), (1, 2, 3))),
    ],
)
def test_lists_are_read(content, lists):
    assert read_lists(content, IDS) == lists


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("抱歉，我无法回答。", "no-json"),
        (answer(["doc-1"], ["doc-2"])[:-4], "no-json"),
        ('{"positive_document": ["doc-1"]}', "missing-key"),
        (answer("doc-1", []), "no-list"),
        (answer([1], []), "no-list"),
        (answer(["doc-5"], ["doc-1"]), "invented"),
        (answer(["doc-0"], ["doc-1"]), "invented"),
        (answer(["doc-1", "doc-2"], ["doc-2"]), "both"),
        (answer([], []), "nothing"),
    ],
)
def test_untrustworthy_answers_are_rejected(content, reason):
    with pytest.raises(Rejected) as rejected:
        read_lists(content, IDS)
    assert rejected.value.reason == reason


def test_the_control_document_is_in_no_list():
    assert read_lists(answer(["doc-1"], ["doc-2", "doc-3"]), IDS, control=2) == Lists((0,), (1,), (3,))
    assert read_lists(answer(["doc-1"], []), IDS, control=2).missing == (1, 3)
    with pytest.raises(Rejected, match="control"):
        read_lists(answer(["doc-3"], ["doc-1"]), IDS, control=2)
    with pytest.raises(Rejected, match="nothing"):
        read_lists(answer([], ["doc-3"]), IDS, control=2)
