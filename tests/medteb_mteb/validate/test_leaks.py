from __future__ import annotations

import json

import pytest

from medteb_mteb.validate.leaks import leaks


@pytest.fixture
def training(tmp_path):
    def write(query, positive):
        path = tmp_path / "triples.jsonl"
        row = {"query": query, "positives": [positive], "negatives": ["另一份材料"]}
        path.write_text(json.dumps(row, ensure_ascii=False) + "\n")
        return [str(path)]

    return write


@pytest.mark.parametrize(
    ("query", "positive", "verdict"),
    [
        ("医院停车场在哪里", "地下一层。", "ok"),
        ("感冒吃什么药呀", "地下一层。", "fail"),
        ("医院停车场在哪里", "感冒\n得了感冒的病人应当在医生指导下用药，并注意休息。", "warning"),
    ],
)
def test_test_queries_in_training_sets_are_counted(look, training, query, positive, verdict):
    finding = look(leaks, against=training(query, positive))
    assert finding.verdict == verdict
    assert finding.numbers["queries near a training text"] == (verdict == "fail")
    assert finding.numbers["relevant documents in training"] == (verdict == "warning")


def test_leaks_are_not_known_without_training_sets(look):
    assert look(leaks).verdict == "not known"
