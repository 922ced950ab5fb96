"""Rubrics and answers of several forms, and the scores of systems."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mar_st.errors import MarError
from medteb_mteb.curation.rubrics.files import read_answers, read_cases, read_rubrics
from medteb_mteb.curation.rubrics.grade import GRADE
from medteb_mteb.curation.rubrics.graders import Words, share_of_words

OURS = {
    "_id": "q1",
    "date": "2026-01-15",
    "prompt": [{"role": "user", "content": "感冒发烧吃什么药？"}],
    "rubrics": [
        {"criterion": "对乙酰氨基酚", "points": 6, "tags": ["axis:accuracy"]},
        {"criterion": "多喝水", "points": 2, "tags": ["axis:completeness"]},
        {"criterion": "抗生素", "points": -9, "tags": ["axis:safety"]},
    ],
}
HEALTHBENCH = {
    "prompt_id": "q2",
    "prompt": [
        {"role": "user", "content": "My ear hurts."},
        {"role": "assistant", "content": "Since when?"},
        {"role": "user", "content": "Since Monday."},
    ],
    "rubrics": [
        {"criterion": "asks about fever", "points": 5, "tags": ["level:example", "axis:context_awareness"]},
        {"criterion": "names otitis", "points": 5, "tags": ["level:example", "axis:accuracy"]},
    ],
    "canary": "x",
}
LIVE = {
    "case_id": 3,
    "post_time": "2026/02/03 10:11",
    "narrative": ["男，40岁。", "血压 150/95。"],
    "core_request": "要吃药吗？",
    "doctor_advice": "先低盐饮食。",
    "rubric_items": [{"criterion": "低盐饮食", "points": 4}, {"criterion": "立即住院", "points": -8}],
}
ANSWERS = [
    {"_id": "q1", "answer": "多喝水，可以吃抗生素。", "system": "a"},
    {"_id": "q2", "answer": "It names otitis and asks about fever.", "system": "a"},
    {"_id": "3", "answer": "低盐饮食。", "system": "a"},
    {"_id": "q1", "answer": "对乙酰氨基酚，多喝水。", "system": "b"},
    {"_id": "3", "answer": " ", "system": "b"},
]


@pytest.fixture
def rubrics(tmp_path, write):
    return write(tmp_path / "rubrics.jsonl", [OURS, HEALTHBENCH, LIVE])


@pytest.fixture
def answers(tmp_path, write):
    return write(tmp_path / "answers.jsonl", ANSWERS)


def scores(folder: Path, by: str = "") -> dict[tuple[str, str], dict]:
    rows = json.loads((folder / "scores.json").read_text(encoding="utf-8"))["scores"]
    return {(row["system"], row["value"]): row for row in rows if row["by"] == by}


def test_rubrics_and_cases_of_all_forms_are_read(rubrics, tmp_path, write):
    first, second, third = read_rubrics(rubrics)
    assert (first.question, first.date) == ("感冒发烧吃什么药？", "2026-01-15")
    assert [one.axis for one in first.criteria] == ["accuracy", "completeness", "safety"]
    assert [one.axis for one in second.criteria] == ["context_awareness", "accuracy"]
    assert "assistant: Since when?" in second.question
    assert (third.id, third.question) == ("3", "男，40岁。\n血压 150/95。\n要吃药吗？")
    rows = [LIVE, {"_id": "b", "question": "要忌口吗？", "answer": "不用。", "date": "2026-03-01"}]
    live, plain = read_cases(write(tmp_path / "cases.jsonl", rows))
    assert (live.question, live.advice) == (third.question, "先低盐饮食。")
    assert (plain.question, plain.advice, plain.date) == ("要忌口吗？", "不用。", "2026-03-01")


def test_empty_columns_of_a_table_count_as_missing(rubrics, tmp_path, write):
    names = dict.fromkeys({name for row in (OURS, HEALTHBENCH, LIVE) for name in row} - {"date"})
    whole = [{**names, "date": None, **LIVE}, {**names, **OURS}]
    for row in whole:
        row["question"] = ""
    third, first = read_rubrics(write(tmp_path / "whole.jsonl", whole))
    assert [first, third] == read_rubrics(rubrics)[::2]


@pytest.mark.parametrize(
    "change",
    [
        {"rubrics": None},
        {"rubrics": []},
        {"rubrics": [{"criterion": "x", "points": -1}]},
        {"rubrics": [{"criterion": "x", "points": 0}, {"criterion": "y", "points": 1}]},
        {"rubrics": [{"criterion": "x", "points": True}]},
        {"rubrics": [{"criterion": " ", "points": 1}]},
        {"prompt": "text"},
        {"prompt": []},
        {"prompt": [{"role": "user", "content": [1]}]},
        {"date": "soon"},
        {"_id": None},
    ],
)
def test_unusable_rubrics_are_refused(change, tmp_path, write):
    with pytest.raises(MarError):
        read_rubrics(write(tmp_path / "rubrics.jsonl", [{**OURS, **change}]))


def test_a_second_answer_of_a_system_is_refused(tmp_path, write):
    with pytest.raises(MarError):
        read_answers([write(tmp_path / "answers.jsonl", [ANSWERS[0], ANSWERS[0]])])
    two = [write(tmp_path / f"{name}.jsonl", [{"_id": "q1", "answer": name}]) for name in "cd"]
    assert read_answers(two) == {"c": {"q1": "c"}, "d": {"q1": "d"}}


def test_both_variants_by_system_axis_and_month(rubrics, answers, run_step, tmp_path, rows_of):
    counts = run_step(
        GRADE, rubrics=rubrics, answers=(answers,), grader=Words(name="words", rule="words", threshold=0.9)
    )
    # By hand. System a: q1 has 2 - 9 of 8 points, q2 10 of 10, 3 has 4 of 4. System b: only q1, 8 of 8.
    ratios = {"a": [-7 / 8, 1.0, 1.0], "b": [1.0, 0.0, 0.0]}
    found = scores(tmp_path / "out")
    for system, values in ratios.items():
        row = found[system, ""]
        assert row["cases"] == 3
        assert row["clipped per case"][0] == pytest.approx(np.clip(values, 0, 1).mean(), abs=1e-4)
        assert row["clipped mean"][0] == pytest.approx(np.clip(np.mean(values), 0, 1), abs=1e-4)
        for variant in ("clipped per case", "clipped mean"):
            score, low, high = row[variant]
            assert 0 <= low <= score <= high <= 1
    axes = scores(tmp_path / "out", "axis")
    assert axes["a", "accuracy"]["clipped mean"][0] == 0.5  # q1 0 of 6, q2 5 of 5
    assert axes["b", "accuracy"]["clipped mean"][0] == 0.5  # q1 6 of 6, q2 is missing
    assert ("a", "safety") not in axes  # no positive points
    months = scores(tmp_path / "out", "month")
    assert {key: row["cases"] for key, row in months.items()} == {
        (system, month): 1 for system in "ab" for month in ("2026-01", "2026-02")
    }
    assert months["a", "2026-01"]["clipped mean"][0] == 0
    assert rows_of(tmp_path / "out/missing.jsonl") == [
        {"_id": "q2", "system": "b"},
        {"_id": "3", "system": "b"},
    ]
    assert counts["rows"] == 3 + 2 + 2 + 3
    met = {(r["system"], r["criterion"]): r["met"] for r in rows_of(tmp_path / "out/verdicts.jsonl")}
    assert met["a", "抗生素"] is True
    assert met["a", "对乙酰氨基酚"] is False


def test_a_single_case_has_no_interval(run_step, tmp_path, write):
    rubrics = write(tmp_path / "rubrics.jsonl", [OURS])
    answers = write(tmp_path / "answers.jsonl", [ANSWERS[0]])
    run_step(GRADE, rubrics=rubrics, answers=(answers,), grader=Words(name="words", rule="words"))
    assert scores(tmp_path / "out")["a", ""]["clipped mean"][1:] == [None, None]


def test_answers_to_other_questions_are_refused(rubrics, run_step, tmp_path, write):
    other = write(tmp_path / "other.jsonl", [{"_id": "q9", "answer": "x"}])
    with pytest.raises(MarError):
        run_step(GRADE, rubrics=rubrics, answers=(other,), grader=Words(name="words", rule="words"))


def test_scores_are_refused_where_the_grader_does_not_agree_with_people(rubrics, answers, run_step, tmp_path):
    grader = Words(name="words", rule="words")
    kappas = {"all": 0.8, "accuracy": 0.41, "completeness": None}
    rows = [{"grader": "w", "category": key, "kappa": [one, None, None]} for key, one in kappas.items()]
    file = tmp_path / "agreement.json"
    file.write_text(json.dumps({"graders": {"w": {"identity": grader.identity()}}, "rows": rows}))
    options = {"rubrics": rubrics, "answers": (answers,), "agreement": file}
    run_step(GRADE, grader=grader, **options)
    content = json.loads((tmp_path / "out/scores.json").read_text())
    assert {row["value"] for row in content["scores"] if "not shown" in row} == {
        "accuracy", "completeness", "context_awareness",
    }  # fmt: skip
    assert not any("clipped mean" in row for row in content["scores"] if "not shown" in row)
    assert scores(tmp_path / "out", "axis")["a", "accuracy"]["not shown"] == "agreement 0.41 < 0.60"
    assert "clipped mean" in scores(tmp_path / "out")["a", ""]
    run_step(GRADE, "low", grader=grader, least=0.4, **options)
    assert "clipped mean" in scores(tmp_path / "low", "axis")["a", "accuracy"]
    with pytest.raises(MarError):
        run_step(GRADE, "other", grader=Words(name="words", rule="words", threshold=0.7), **options)


def test_shared_words():
    assert share_of_words("drink water", {"water", "is", "good", "to", "drink"}) == 1
    assert share_of_words("多喝水", {"喝水", "水就"}) == 1 / 2
    assert share_of_words("!?", {"anything"}) == 0
