"""Answers that could not be read: read again, shown without the texts, and why a judge was stopped."""

from __future__ import annotations

import json

import pytest
from tests.medteb_mteb.curation.judge.settled import answer, material_of, planned

from medteb_mteb.curation.judge.entries import JudgeAccount
from medteb_mteb.curation.judge.unread import read_again, shown, why_stopped
from medteb_mteb.curation.judge.worker import JudgeWorker
from medteb_mteb.curation.llm.database import Failure
from medteb_mteb.curation.llm.origins import Origin

DAY = Origin("qwen3", "", "2026-11-01")


def keep(planner, content, ending=""):
    """Store answers as those that no reader understood; `content` makes the answer to a request."""
    for task in list(planner.tasks()):
        planner.journal.settle(
            planner.settings, task.request, judge=planner.judge.name, grades={}, follow=(),
            failures={key: Failure("not-json", 0) for key in task.request.keys}, paid=JudgeAccount(1),
            unread=(ending, content(task) if callable(content) else content), origin=DAY,
        )  # fmt: skip


def letters(task, own="A", **others):
    """A good answer to a request, in which some documents have another letter or none."""
    good = {1: "D", 2: "B", 4: "A"}
    told = {task.prompt.keys[number]: good[kind] for number, kind in task.controls.items()}
    for number, document in zip(task.numbers, task.documents, strict=True):
        told[task.prompt.keys[number]] = others.get(document, own)
    return json.dumps(told)


def stored(planner):
    material = planner.material
    keys = {planner.key(q, d): (q, d) for q in material.queries for d in material.documents}
    grades, failures = planner.journal.grades(list(keys)), planner.journal.failures(list(keys))
    return {keys[key]: one for key, one in grades.items()}, {keys[key] for key in failures}


@pytest.mark.parametrize("tags", [True, False])
@pytest.mark.parametrize("control_rate", [0.0, 1.0])
def test_answers_that_a_better_reader_understands_give_their_grades(journal, tags, control_rate):
    planner = planned(journal, material_of(2, 5), tags=tags, control_rate=control_rate)
    keep(planner, lambda task: letters(task, d3="C"))
    assert len(journal.unread(planner.settings)) == 4
    assert read_again(planner, journal) == 10
    grades, failures = stored(planner)
    assert grades == {(q, f"d{i}"): "C" if i == 3 else "A" for q in ("q0", "q1") for i in range(5)}
    assert (failures, journal.unread(planner.settings)) == (set(), [])
    assert {*journal.origins([planner.key("q0", "d0")]).values()} == {DAY}
    assert journal.places([planner.key("q0", "d3")]) != {}
    assert read_again(planner, journal) == 0
    assert list(planner.tasks()) == []


@pytest.mark.parametrize(
    ("content", "ending"),
    [
        ("很难说", ""),
        ("", ""),
        ("[" * 50_000, ""),
        (lambda task: letters(task), "refused"),
        (lambda task: letters(task).replace('"D"', '"S"'), ""),  # a control passage that got an S
    ],
)
def test_an_answer_that_still_cannot_be_read_is_kept_and_its_passages_fail_as_before(
    journal, content, ending
):
    planner = planned(journal, material_of(1, 4))
    keep(planner, content, ending)
    assert read_again(planner, journal) == 0
    assert stored(planner) == ({}, {("q0", f"d{i}") for i in range(4)})
    assert len(journal.unread(planner.settings)) == 1


def test_an_answer_read_in_part_changes_no_grade_that_was_bought_since(journal):
    planner = planned(journal, material_of(1, 4))
    keep(planner, lambda task: letters(task, d1="?"))
    again = planned(journal, material_of(1, 4, pools={"q0": ["d0"]}), retry_failed=True)
    answer(again, lambda query, document: "D")
    assert read_again(planner, journal) == 2
    assert stored(planner) == ({("q0", "d0"): "D", ("q0", "d2"): "A", ("q0", "d3"): "A"}, {("q0", "d1")})


def test_answers_of_another_judge_are_not_read(journal):
    keep(planned(journal, material_of(1, 4)), letters)
    assert read_again(planned(journal, material_of(1, 4), variant="8bit"), journal) == 0
    assert journal.size() == 0


@pytest.mark.parametrize(
    ("failed", "allowed", "expected"),
    [
        ({"not-json": 2}, 0.5, ""),
        ({"not-json": 3}, 0.5, "3 of 4 judgements failed (not-json 3), and max_failed is 0.5."),
        (
            {"letter": 1, "cut": 2},
            0,
            "3 of 4 judgements failed (cut 2, letter 1), and max_failed is 0.",
        ),
        ({"filtered": 4}, 0, ""),
        ({"filtered": 3, "cut": 1}, 0, "1 of 4 judgements failed (cut 1), and max_failed is 0."),
        ({}, 0, ""),
    ],
)
def test_too_many_failures_stop_a_judge_unless_a_filter_caused_them(journal, failed, allowed, expected):
    reasons = [reason for reason, number in failed.items() for _ in range(number)]
    outcomes = dict(zip([f"d{i}" for i in range(4)], [*reasons, "A", "A", "A", "A"], strict=False))
    answer(planned(journal, material_of(1, 4)), lambda query, document: outcomes[document])
    worker = JudgeWorker(
        planned(journal, material_of(1, 4), max_failed=allowed), journal, lambda **counts: None
    )
    assert worker.more() == []
    why = why_stopped(worker)
    assert why.startswith(expected)
    assert why.endswith(" Fix the cause and give --retry-failed, or raise max_failed") is bool(expected)


def test_a_judge_that_was_stopped_before_says_that_reason(journal):
    worker = JudgeWorker(planned(journal, material_of(1, 4)), journal, lambda **counts: None)
    worker.stopped = "nobody there"
    assert why_stopped(worker) == "nobody there"
    keep(worker.planner, "很难说")
    worker.useless = True
    assert why_stopped(worker) == ("nobody there. Its first answers of that kind: '很难说'. Fix the cause")


def test_the_first_three_answers_are_shown_short_and_in_one_line(journal):
    planner = planned(journal, material_of(5, 1))
    assert shown(planner, journal) == ""
    keep(planner, "I\x1b[31m cannot\n\n\tsay. " + "so" * 1000)
    text = shown(planner, journal)
    assert text.count("'I\\x1b[31m cannot say. soso") == 3
    assert "\n" not in text
    assert "\x1b" not in text
    assert len(text) < 3 * 220 + 50


PRIVATE = "姓名:\n张三丰\n电话:\n1380013\u200b8000\n住址: 武当山 南岩"


@pytest.mark.parametrize(
    "repeated",
    [
        PRIVATE,
        " ".join(PRIVATE.split()),
        "".join(PRIVATE.split()).replace("\u200b", ""),
        json.dumps({"text": PRIVATE}, ensure_ascii=False),
        "姓名：张三丰，电话：1380013-8000，住址：武当山南岩",
        "姓名:|张三丰|电话:|1380013_8000",
        "张三丰",
    ],
)
def test_an_answer_that_repeats_a_text_in_any_writing_is_not_shown(journal, repeated):
    planner = planned(journal, material_of(documents={"d0": PRIVATE}))
    keep(planner, repeated)
    text = shown(planner, journal)
    assert "张三" not in text
    assert "138" not in text
    assert f"({len(repeated)} characters that repeat a text)" in text


@pytest.mark.parametrize("content", ["我无法判断这些段落与查询的相关程度", "…", "\n"])
def test_an_answer_of_its_own_words_is_shown(journal, content):
    planner = planned(journal, material_of(documents={"d0": PRIVATE}))
    keep(planner, content)
    assert repr(content.strip()) in shown(planner, journal)
