"""Graders: answers of LLMs as they come, NLI models, and nothing bought twice."""

from __future__ import annotations

import json
import re

import pytest
from fault_server import FaultEndpoint
from llm_server import llm_at, running, serving

from mar_st.errors import MarError
from mar_st.options import Settings
from medteb_mteb.curation.rubrics.grade import GRADE
from medteb_mteb.curation.rubrics.graders import Entailment, Grader, Item, Prompted, Words, as_met

CRITERIA = ("names paracetamol", "advises rest", "prescribes antibiotics")
ITEM = Item("a", "What helps against a cold?", 'Take paracetamol ("twice") {daily} and rest.', CRITERIA)
WANTED = [True, True, False]
STYLES = {
    "as asked": '{"verdicts": [{"criterion": 1, "quote": "Take paracetamol", "met": true},'
    ' {"criterion": 2, "quote": "and rest", "met": true}, {"criterion": 3, "quote": "", "met": false}]}',
    "fenced array": '```json\n[{"criterion": 1, "met": true}, {"criterion": 2, "met": "Yes"},\n'
    '{"criterion": "3", "met": "false"}]\n```',
    "prose around": 'Here are my verdicts:\n{"criterion": 1, "quote": "x", "met": true}\n'
    'The answer says "rest".\n{"criterion": 2, "met": true} {"criterion": 3, "met": false}\nDone {all}.',
    "by number": '{"verdicts": {"1": true, "2": true, "3": false}}',
    "by text": json.dumps([{"question": one, "met": met} for one, met in zip(CRITERIA, WANTED, strict=True)]),
    "thoughts": '<think>Perhaps {"criterion": 1, "met": false}?</think>{"1": true, "2": true, "3": false}',
    "python": "{'verdicts': [{'criterion': 1, 'met': True}, {'criterion': 2, 'met': True}, "
    "{'criterion': 3, 'met': False}]}",
    "braces in a quote": '[{"criterion": 1, "quote": "(\\"twice\\") {daily}", "met": true},'
    ' {"criterion": "Criterion 2", "met": 1}, {"criterion": 3, "met": "not met"}]',
}
CUT = '{"verdicts": [{"criterion": 1, "met": true}, {"criterion": 2, "met": true}, {"criterion": 3, "quo'


def llm(url: str, **settings) -> Prompted:
    return Prompted(**dict(llm_at(url, **settings)))


def numbered(messages) -> list[str]:
    """The criteria of a prompt."""
    part = messages[-1]["content"].split("# Criteria\n")[-1].split("\n\n")[0]
    return re.findall(r"^\d+\. (.*)$", part, re.MULTILINE)


@pytest.mark.parametrize("style", STYLES)
def test_answers_are_read_in_the_styles_of_llms(style, tmp_path):
    with serving(lambda messages: STYLES[style]) as url:
        graded = llm(url).grade([ITEM], tmp_path / "out")
    assert [one.met for one in graded.verdicts["a"]] == WANTED
    assert graded.details["asked again"] == 0


@pytest.mark.parametrize(
    "first",
    [
        CUT,
        '[{"criterion": 1, "met": true}, {"criterion": 2, "met": true}, {"criterion": 3, "met": "perhaps"}]',
        '{"1": true, "2": true, "7": false}',
        '[{"criterion": 3, "met": true}, {"1": true, "2": true}, {"criterion": 3, "met": false}]',
    ],
)
def test_a_missing_verdict_is_asked_for_again_alone(first, tmp_path):
    asked = []

    def answer(messages):
        asked.append(numbered(messages))
        return first if len(asked) == 1 else '{"criterion": 1, "met": false}'

    server = FaultEndpoint(answer=answer)
    with running(server) as url:
        graded = llm(url).grade([ITEM], tmp_path / "out")
        assert [one.met for one in graded.verdicts["a"]] == WANTED
        assert asked == [list(CRITERIA), [CRITERIA[2]]]
        assert llm(url).grade([ITEM], tmp_path / "out").verdicts == graded.verdicts
    assert server.made == 2  # the second run is answered by the journal


def test_what_is_still_missing_is_no_verdict_and_is_counted(tmp_path, write, run_step, rows_of):
    def answer(messages):
        texts = numbered(messages)
        verdicts = [{"criterion": n, "met": True} for n, text in enumerate(texts, 1) if "rest" in text]
        return json.dumps({"verdicts": verdicts})

    points = [
        {"criterion": text, "points": points} for text, points in zip(CRITERIA, (4, 2, -5), strict=True)
    ]
    row = {"_id": "q", "prompt": [{"role": "user", "content": ITEM.question}], "rubrics": points}
    rubrics = write(tmp_path / "rubrics.jsonl", [row])
    answers = write(tmp_path / "answers.jsonl", [{"_id": "q", "answer": ITEM.answer}])
    options = {"rubrics": rubrics, "answers": (answers,)}
    server = FaultEndpoint(answer=answer)
    with running(server) as url:
        with pytest.raises(MarError, match="anonymize"):
            run_step(GRADE, already_anonymous=False, grader=llm(url), **options)
        assert server.arrived == 0
        counts = run_step(GRADE, grader=llm(url), **options)
    met = [row["met"] for row in rows_of(tmp_path / "out/verdicts.jsonl")]
    assert met == [None, True, None]
    assert (counts["details"]["no verdict"], counts["details"]["asked again"]) == (2, 1)
    content = json.loads((tmp_path / "out/scores.json").read_text())
    assert content["scores"][0]["clipped mean"][0] == 1  # of the two points that were judged


def test_quotes_that_are_not_in_the_answer_are_counted(tmp_path):
    verdicts = [
        {"criterion": 1, "quote": "take  Paracetamol", "met": True},
        {"criterion": 2, "quote": "stay in bed", "met": True},
        {"criterion": 3, "quote": "", "met": False},
    ]
    with serving(lambda messages: json.dumps(verdicts)) as url:
        graded = llm(url).grade([ITEM], tmp_path / "out")
    assert graded.details["quotes that are not in the answer"] == 1


def test_a_cross_encoder_for_nli_grades_by_its_label(tmp_path):
    import torch
    from tests.mar_st.conftest import save_cross_encoder
    from transformers import AutoModelForSequenceClassification

    folder = save_cross_encoder(tmp_path / "nli", labels=3)
    grader = Entailment(name="nli", cross_encoder=str(folder))
    with pytest.raises(MarError, match="entailment"):
        grader.grade([ITEM], tmp_path / "out")
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    names = ("contradiction", "Entailment", "neutral")
    model.config.id2label, model.config.label2id = dict(enumerate(names)), {n: i for i, n in enumerate(names)}
    for place, met in ((1, True), (2, False)):
        with torch.no_grad():
            model.classifier.bias.zero_()
            model.classifier.bias[place] = 100
        model.save_pretrained(folder)
        graded = grader.grade([ITEM, Item("b", "q", "no", ("x",))], tmp_path / "out")
        assert graded.verdicts["a"] == [(met, "")] * 3
        assert graded.verdicts["b"] == [(met, "")]
    assert grader.identity() == Entailment(name="other", cross_encoder=str(folder)).identity()


def test_a_grader_is_what_its_entry_says():
    class Some(Settings):
        grader: Grader

    entries = [
        ({"name": "w", "rule": "words"}, Words),
        ({"name": "n", "cross_encoder": "folder"}, Entailment),
        ({"name": "g", "model": "m", "base_url": "http://127.0.0.1:1/v1"}, Prompted),
    ]
    for entry, kind in entries:
        assert isinstance(Some.model_validate({"grader": entry}).grader, kind)


def test_labels_of_people_and_models():
    assert [as_met(one) for one in (True, "Entailment", "1", "是", 1)] == [True] * 5
    assert [as_met(one) for one in (False, "Neutral", "contradiction", "否", 0)] == [False] * 5
    assert [as_met(one) for one in (None, "", "maybe", 2)] == [None] * 4
