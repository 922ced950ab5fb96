"""Answers of a judge: grades taken from them, passages asked for again, failures and costs."""

from __future__ import annotations

import json

import pytest
from tests.medteb_mteb.curation.judge.settled import material_of, planned

from medteb_mteb.curation.judge.controls import MISGRADED_REASONS
from medteb_mteb.curation.judge.entries import ECHO, GOLD, OFF_TOPIC, JudgeAccount, Place
from medteb_mteb.curation.judge.worker import JudgeWorker, ending_of, verdict_of
from medteb_mteb.curation.llm.database import Failure
from medteb_mteb.curation.llm.messages import Reply

KEYS = ("Passage-0-aaa", "Passage-1-bbb", "Passage-2-ccc")
#: A grade that is right for each kind of control passage.
RIGHT = {OFF_TOPIC: "D", ECHO: "B", GOLD: "S"}


def reply(content, *, refused=False, cut=False):
    return Reply(content, refused, cut, 1000, 100, False, "qwen3", "fp")


def answering(task, grades, **controls):
    """The JSON of an answer: grades by document id, and right ones for control passages unless given."""
    told = {task.prompt.keys[number]: RIGHT[kind] for number, kind in task.controls.items()}
    told |= {
        task.prompt.keys[number]: grades[document]
        for number, document in zip(task.numbers, task.documents, strict=True)
        if document in grades
    }
    told |= {
        task.prompt.keys[n]: controls[k]
        for n, kind in task.controls.items()
        for k in [f"k{kind}"]
        if k in controls
    }
    return json.dumps(told)


@pytest.fixture
def worker(journal):
    """A judge with one request for four passages of a query, and two control passages."""
    planner = planned(journal, material_of(1, 4), price_in=1000.0, price_out=2000.0)
    progress = []
    made = JudgeWorker(planner, journal, lambda **counts: progress.append(counts))
    made.seen = progress
    return made


def test_grades_are_stored_with_places_origin_and_cost(worker, journal):
    (task,) = worker.more()
    assert journal.requests(worker.settings) == [task.request]  # before it is sent
    grades = {"d0": "S", "d1": "A", "d2": "C", "d3": "D"}
    assert worker.settle(task, reply(answering(task, grades)), "") == []
    keys = {document: worker.planner.key("q0", document) for document in grades}
    assert journal.grades(list(keys.values())) == {keys[document]: grades[document] for document in grades}
    places = journal.places(list(keys.values()))
    assert {document: places[keys[document]] for document in grades} == {
        document: Place(number + 1, 6) for number, document in zip(task.numbers, task.documents, strict=True)
    }
    assert {origin.model for origin in journal.origins(list(keys.values())).values()} == {"qwen3"}
    assert journal.account("one") == JudgeAccount(1, 1000, 100, 1.2, 0, 1, 0)
    assert (worker.tally.bought, worker.tally.asked_again) == (4, 0)
    assert worker.seen == [{"graded": 4, "failed": 0, "cost": 1.2}]
    assert worker.more() == journal.requests(worker.settings) == []


def test_a_passage_without_a_grade_is_asked_for_alone_and_then_fails(worker, journal):
    (task,) = worker.more()
    follow = worker.settle(task, reply(answering(task, {"d0": "S", "d1": "Z", "d3": "D"})), "")
    assert sorted((one.documents, one.request.attempt) for one in follow) == [(("d1",), 1), (("d2",), 1)]
    assert worker.tally.failed == {}
    for one, content in zip(follow, ["D", "I cannot say."], strict=True):
        assert worker.settle(one, reply(content), "") == []
    keys = [worker.planner.key("q0", one.documents[0]) for one in follow]
    assert journal.grades(keys) == {keys[0]: "D"}
    assert journal.failures(keys) == {keys[1]: Failure("not-json", 1)}
    assert (worker.tally.bought, worker.tally.asked_again, worker.tally.failed) == (3, 2, {"not-json": 1})
    assert [counts["graded"] + counts["failed"] for counts in worker.seen] == [2, 1, 1]


def test_a_request_without_an_answer_is_repeated_passage_by_passage_and_costs_nothing(worker, journal):
    (task,) = worker.more()
    follow = worker.settle(task, None, "filtered")
    assert sorted(one.documents for one in follow) == [("d0",), ("d1",), ("d2",), ("d3",)]
    assert worker.settle(follow[0], None, "filtered") == []
    key = follow[0].request.keys[0]
    assert journal.failures([key]) == {key: Failure("filtered", 1)}
    assert journal.account("one") == JudgeAccount()
    assert journal.unread(worker.settings) == []


@pytest.mark.parametrize(
    ("controls", "reason"),
    [
        ({f"k{OFF_TOPIC}": "S"}, "control"),
        ({f"k{ECHO}": "D"}, "control-low"),
        ({f"k{ECHO}": "?"}, "control-missing"),
    ],
)
def test_an_answer_that_misgrades_a_control_passage_counts_for_no_passage(worker, journal, controls, reason):
    (task,) = worker.more()
    grades = dict.fromkeys(task.documents, "S")
    follow = worker.settle(task, reply(answering(task, grades, **controls)), "")
    assert len(follow) == 4
    assert journal.size() == 0
    assert worker.tally.distrusted == {reason: 1}
    flagged = reason in MISGRADED_REASONS.values()
    assert (journal.account("one").controls, journal.account("one").controls_failed) == (1, int(flagged))
    # Such a passage is shown with control passages again.
    assert {len(one.controls) for one in follow} == ({2} if flagged else {0})


@pytest.mark.parametrize(("keep", "kept"), [("unread", 1), ("none", 0)])
def test_only_answers_that_lack_a_grade_are_kept(journal, keep, kept):
    worker = JudgeWorker(
        planned(journal, material_of(2, 4), keep_answers=keep), journal, lambda **counts: None
    )
    first, second = worker.more()
    worker.settle(first, reply(answering(first, dict.fromkeys(first.documents, "A"))), "")
    assert journal.unread(worker.settings) == []
    worker.settle(second, reply("说不清 \ud800", cut=True), "")
    assert journal.unread(worker.settings) == [(second.request, "cut", "说不清 ?")] * kept


@pytest.mark.parametrize(
    ("content", "refused", "cut", "reason"),
    [
        (None, False, False, "empty"),
        (" \n", False, False, "empty"),
        ('{"Passage-0-aaa": "S"}', True, False, "refused"),
        ('{"Passage-0-aaa": ', False, True, "cut"),
        ("[" * 50_000, False, False, "not-json"),
        ('{"Passage-0-bbb": "A", "Passage-1-aaa": "B", "Passage-2-ccc": "C"}', False, False, "swapped"),
    ],
)
def test_an_answer_that_cannot_be_trusted_gives_no_grade(content, refused, cut, reason):
    ending = ending_of(reply(content, refused=refused, cut=cut))
    verdict = verdict_of(content, KEYS, {}, ending)
    assert (verdict.grades, verdict.missing, verdict.whole) == ({}, dict.fromkeys(range(3), reason), reason)


@pytest.mark.parametrize(
    ("letters", "whole"),
    [("AAC", ""), ("SAB", "control"), ("DAD", "control-low"), ("A?D", ""), ("?AD", "control-missing")],
)
def test_control_passages_decide_on_the_whole_answer(letters, whole):
    """The first passage is a gold one, the last one is about something else."""
    content = json.dumps(dict(zip(KEYS, letters, strict=True)))
    verdict = verdict_of(content, KEYS, {0: GOLD, 2: OFF_TOPIC}, "")
    assert verdict.whole == whole
    assert (1 in verdict.grades) is (not whole and letters[1] != "?")
    if whole:
        assert verdict.missing == dict.fromkeys(range(3), whole)


def test_a_finished_judge_forgets_requests_with_passages_that_left_the_pools(journal):
    before = JudgeWorker(planned(journal, material_of(1, 4)), journal, lambda **counts: None)
    (sent,) = before.more()
    material = material_of(1, 4, pools={"q0": ["d0", "d1"]})
    worker = JudgeWorker(planned(journal, material), journal, lambda **counts: None)
    (task,) = worker.more()
    worker.settle(task, reply(answering(task, {"d0": "A", "d1": "B"})), "")
    assert journal.requests(worker.settings) == [sent.request]
    worker.finish()
    assert journal.requests(worker.settings) == []
