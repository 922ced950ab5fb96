"""Passages that a judge grades as answers to queries which they cannot answer."""

from __future__ import annotations

import pytest
from tests.medteb_mteb.curation.judge.settled import answer, material_of, planned

from medteb_mteb.curation.judge.controls import CONTROL_TEXTS
from medteb_mteb.curation.judge.journal import JudgementJournal
from medteb_mteb.curation.judge.raised import check_of, raised


@pytest.fixture
def journal(tmp_path):
    with JudgementJournal(tmp_path / "journal.sqlite") as opened:
        yield opened


@pytest.fixture
def judged(journal):
    """A judge of two queries, whose positives are d1 (of both) and d2 (of the second)."""
    planner = planned(journal, material_of(2, 5))
    best = {("q0", "d1"): "A", ("q1", "d1"): "S", ("q1", "d2"): "A"}
    answer(planner, lambda query, document: best.get((query, document), "B"))
    return planner


def test_each_positive_is_shown_once_with_a_query_about_something_else(judged, journal):
    check = check_of(judged, journal)
    tasks = list(check.tasks())
    assert sorted(document for task in tasks for document in task.documents) == ["d1", "d2"]
    assert set(check.material.queries.values()) <= set(CONTROL_TEXTS)
    for task in tasks:
        assert not any(text in task.prompt.user for text in judged.material.queries.values())
        assert all(judged.material.documents[name] in task.prompt.user for name in task.documents)


def test_an_answered_check_is_not_asked_for_again(judged, journal):
    answer(check_of(judged, journal), lambda query, document: "D")
    assert list(check_of(judged, journal).tasks()) == []
    assert list(planned(journal, judged.material).tasks()) == []


def test_a_positive_under_two_ids_is_checked_once(journal):
    documents, pools = {"x": "同一段话。", "y": "同一段话。"}, {"q0": ("x",), "q1": ("y",)}
    planner = planned(journal, material_of(2, documents, pools))
    answer(planner, lambda query, document: "S")
    assert check_of(planner, journal).material.pairs == 1


@pytest.mark.parametrize("grade", ["B", "C", "D", "refused"])
def test_without_positives_there_is_nothing_to_check(journal, grade):
    planner = planned(journal, material_of(1, 3))
    answer(planner, lambda query, document: grade)
    assert check_of(planner, journal) is None


@pytest.mark.parametrize(
    ("outcome", "caught"),
    [("S", True), ("A", True), ("B", True), ("C", False), ("D", False), ("control", True),
     ("control-low", True), ("refused", False), ("letter", False)],
)  # fmt: skip
def test_a_passage_is_caught_by_a_grade_that_it_cannot_have(judged, journal, outcome, caught):
    check = check_of(judged, journal)
    answer(check, lambda query, document: outcome if document == "d1" else "D")
    expected = {judged.material.digests["d", "d1"]} if caught else set()
    assert raised([check], journal) == expected


def test_one_judge_that_is_fooled_is_enough(judged, journal):
    other = planned(journal, judged.material, "two")
    answer(other, lambda query, document: "A" if document == "d2" else "D")
    checks = [check_of(judged, journal), check_of(other, journal)]
    answer(checks[0], lambda query, document: "D")
    answer(checks[1], lambda query, document: "S")
    assert raised(checks, journal) == {judged.material.digests["d", "d2"]}
    assert raised([], journal) == frozenset()
