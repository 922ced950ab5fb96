"""Exam questions of MedMCQA and MedQA, also as pairs of question and option."""

from __future__ import annotations

import json

import pytest
from tests.medteb_mteb.curation.relatives.raw_samples import write_exams

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.relatives.exams import medmcqa, medmcqa_pairs, medqa, medqa_pairs
from medteb_mteb.curation.relatives.raw import Raw


def test_questions_have_their_options_in_order_and_the_place_of_the_answer(tmp_path):
    raw = Raw(write_exams(tmp_path / "raw", exp="The  heart\nbeats."))
    assert list(medmcqa(raw)) == [
        {
            "question": "Which organ beats?",
            "options": ["Skin", "Heart", "Liver", "Bone"],
            "answer": 1,
            "explanation": "The heart beats.",
        }
    ]
    assert list(medqa(raw)) == [{"question": "What is given?", "options": ["Tea", "Aspirin"], "answer": 1}]
    assert set(raw.used) == {"dev.json", "phrases_no_exclude_test.jsonl"}


def test_each_option_is_a_pair_and_one_is_right(tmp_path):
    raw = Raw(write_exams(tmp_path / "raw"))
    assert [(pair["sentence2"], pair["label"]) for pair in medmcqa_pairs(raw)] == [
        ("Skin", 0),
        ("Heart", 1),
        ("Liver", 0),
        ("Bone", 0),
    ]
    assert medqa_pairs(raw) == [
        {"sentence1": "What is given?", "sentence2": "Tea", "label": 0},
        {"sentence1": "What is given?", "sentence2": "Aspirin", "label": 1},
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"cop": 0},
        {"cop": 5},
        {"cop": "2"},
        {"cop": True},
        {"cop": 2.0},
        {"cop": None},
        {"opd": None},
        {"opa": " "},
        {"question": 7},
        {"question": ""},
    ],
)
def test_an_incomplete_question_of_medmcqa_is_named(tmp_path, change):
    with pytest.raises(BuildError, match=r"dev\.json: x1 has no question, four options and cop from 1 to 4"):
        list(medmcqa(Raw(write_exams(tmp_path / "raw", **change))))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"answer_idx": "C"}, "expected question, options and answer_idx"),
        ({"answer_idx": None}, "expected question, options and answer_idx"),
        ({"answer_idx": ["B"]}, "expected question, options and answer_idx"),
        ({"answer_idx": {}}, "expected question, options and answer_idx"),
        ({"options": ["Tea", "Aspirin"]}, "expected question, options and answer_idx"),
        ({"options": {"A": None, "B": "Tea"}}, "an option is empty"),
        ({"question": None}, "expected question, options and answer_idx"),
    ],
)
def test_an_incomplete_question_of_medqa_is_named_with_its_line(tmp_path, change, message):
    exam = {"question": "What is given?", "options": {"A": "Tea", "B": "Aspirin"}, "answer_idx": "B"}
    lines = [json.dumps(exam), json.dumps(exam | change)]
    (tmp_path / "us_test.jsonl").write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(BuildError, match=rf"us_test\.jsonl:2: {message}"):
        list(medqa(Raw(tmp_path)))


def test_options_are_read_in_the_order_of_their_letters(tmp_path):
    exam = {"question": "q", "options": {"C": "c", "A": "a", "B": "b"}, "answer_idx": "C"}
    (tmp_path / "dev.jsonl").write_text(json.dumps(exam), encoding="utf-8")
    assert list(medqa(Raw(tmp_path), "dev.jsonl")) == [
        {"question": "q", "options": ["a", "b", "c"], "answer": 2}
    ]
