"""Rubrics from physicians' answers, and answers of LLMs with and without passages."""

from __future__ import annotations

import json

import pytest
from fault_server import FaultEndpoint
from llm_server import llm_at, running, serving

from mar_st.errors import MarError
from medteb_mteb.curation.rubrics.files import read_answers, read_rubrics
from medteb_mteb.curation.rubrics.write import ANSWER, RUBRICS, AnswerSettings, RubricsSettings
from medteb_mteb.curation.step import Estimate

CASES = [
    {
        "_id": "c1",
        "date": "2026-01-05",
        "narrative": ["3-year-old, fever of 39 C."],
        "question": "Which drug helps?",
        "advice": ["Give paracetamol.", "See a doctor if it lasts."],
    },
    {"_id": "c2", "question": "高血压能喝咖啡吗？", "answer": "少量可以，注意监测血压。"},
    {"_id": "c3", "question": "Nobody answered this."},
]
CRITERIA = [
    {"criterion": "Recommends paracetamol for the fever", "axis": "Accuracy", "points": 7},
    {"criterion": "Recommends paracetamol for fever.", "axis": "accuracy", "points": 5},
    {"criterion": "Prescribes aspirin to the child", "axis": "safety", "points": -10},
    {"criterion": "The fever is gone after three days", "axis": "completeness", "points": 2},
    {"criterion": "Is kind", "axis": "kindness", "points": 2},
    {"criterion": "Is long", "axis": "completeness", "points": 50},
    {"criterion": "Advises to see a doctor if it lasts", "axis": "Context Awareness", "points": "3"},
]


def write_criteria(messages):
    text = messages[-1]["content"]
    if "undecidable" in text:
        number = next(
            (line.split(".")[0] for line in text.splitlines() if "gone after" in line and line[0].isdigit()),
            0,
        )
        return json.dumps({"undecidable": [int(number)] if number else []})
    if "咖啡" in text:
        return '[{"criterion": "建议戒酒", "axis": "accuracy", "points": -2}]'
    return "Sure!\n```json\n" + json.dumps({"criteria": CRITERIA}) + "\n```"


@pytest.fixture
def cases(tmp_path, write):
    return write(tmp_path / "cases.jsonl", CASES)


@pytest.fixture
def rubrics(tmp_path, write):
    questions = (("q1", "感冒发烧吃什么药？"), ("q2", "What helps against a cold?"))
    rows = [
        {
            "_id": name,
            "prompt": [{"role": "user", "content": text}],
            "rubrics": [{"criterion": "x", "points": 1}],
        }
        for name, text in questions
    ]
    return write(tmp_path / "rubrics.jsonl", rows)


def test_criteria_are_written_checked_and_read_again(cases, run_step, tmp_path, rows_of):
    server = FaultEndpoint(answer=write_criteria)
    with running(server) as url:
        with pytest.raises(MarError, match="anonymize"):
            run_step(RUBRICS, cases=cases, llm=llm_at(url), already_anonymous=False)
        assert server.arrived == 0
        counts = run_step(RUBRICS, cases=cases, llm=llm_at(url))
        made = server.made
        run_step(RUBRICS, "again", cases=cases, llm=llm_at(url), most=12)
        assert server.made == made
    (rubric,) = read_rubrics(tmp_path / "out")
    assert (rubric.id, rubric.date) == ("c1", "2026-01-05")
    assert rubric.question == "3-year-old, fever of 39 C.\nWhich drug helps?"
    assert [(one.points, one.axis) for one in rubric.criteria] == [
        (7, "accuracy"),
        (-10, "safety"),
        (3, "context_awareness"),
    ]
    assert counts["details"]["dropped"] == {"axis": 1, "overlap": 1, "points": 1, "undecidable": 1}
    assert rows_of(tmp_path / "out/failed.jsonl") == [{"_id": "c2", "reason": "no-positive"}]


def test_a_rubric_has_at_most_the_given_number_of_criteria(cases, run_step, tmp_path):
    with serving(write_criteria) as url:
        counts = run_step(RUBRICS, cases=cases, llm=llm_at(url), most=2)
    assert len(read_rubrics(tmp_path / "out")[0].criteria) == 2
    assert counts["details"]["dropped"]["too-many"] == 2


def test_an_llm_answers_in_the_language_of_the_question(rubrics, run_step, tmp_path, rows_of):
    def write(messages):
        chinese = "你是医生" in messages[0]["content"]
        return "<think>hm</think>多喝水。" if chinese else "<think>only thoughts</think>"

    server = FaultEndpoint(answer=write)
    with running(server) as url:
        counts = run_step(ANSWER, rubrics=rubrics, llm=llm_at(url))
        assert "response_format" not in json.dumps(server.bodies)
    assert read_answers([tmp_path / "out"]) == {"writer": {"q1": "多喝水。"}}
    assert rows_of(tmp_path / "out/failed.jsonl") == [{"_id": "q2", "reason": "empty"}]
    assert counts["rows"] == 1


def test_the_best_passages_are_in_the_prompt(rubrics, run_step, tmp_path, write, rows_of):
    texts = {"d1": "感冒发烧可以吃对乙酰氨基酚。", "d2": "骨折后应制动。", "d3": "胃炎宜清淡饮食。"}
    corpus = write(tmp_path / "corpus.jsonl", [{"_id": name, "text": text} for name, text in texts.items()])
    with serving(lambda messages: messages[-1]["content"]) as url:
        run_step(ANSWER, rubrics=rubrics, llm=llm_at(url), context=corpus, k=1)
    first = rows_of(tmp_path / "out/answers.jsonl")[0]
    assert (first["system"], first["passages"]) == ("writer+corpus", ["d1"])
    assert texts["d1"] in first["answer"]
    assert texts["d2"] not in first["answer"]


def test_estimates_count_every_request(tmp_path):
    llm = llm_at("http://127.0.0.1:9/v1", price_in=1.0)
    settings = RubricsSettings(cases=tmp_path, out=tmp_path / "x", llm=llm)
    written = RUBRICS.estimate(settings, {"cases": Estimate(10)})
    assert (written.rows, written.requests) == (10, 20)
    plain = AnswerSettings(rubrics=tmp_path, out=tmp_path / "y", llm=llm)
    with_passages = plain.model_copy(update={"context": tmp_path})
    costs = [ANSWER.estimate(one, {"rubrics": written}).cost for one in (plain, with_passages)]
    assert 0 < costs[0] < costs[1]
