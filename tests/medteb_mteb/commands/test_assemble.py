from __future__ import annotations

import json
from pathlib import Path

import pytest

DISEASES = ["感冒", "高血压", "糖尿病", "偏头痛", "胃炎", "湿疹", "哮喘", "肺炎", "痛风", "贫血"]


@pytest.fixture(autouse=True)
def given(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    write("queries.jsonl", [{"_id": f"q{i}", "text": f"{name}吃什么"} for i, name in enumerate(DISEASES)])
    write(
        "documents.jsonl",
        [{"_id": f"d{i}", "text": f"{name}宜清淡饮食。"} for i, name in enumerate(DISEASES)],
    )
    rows = [
        {"query-id": f"q{i}", "corpus-id": f"d{j}", "relevance": int(i == j)}
        for i in range(10)
        for j in range(10)
    ]
    write("labels.jsonl", rows)


def write(name, rows):
    with Path(name).open("w", encoding="utf-8") as stream:
        stream.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


GIVEN = ["labels.jsonl", "queries.jsonl", "documents.jsonl"]
NAMED = ["--name", "clinic", "--license", "cc-by-4.0", "--threshold", "0.9"]


def test_labels_become_editions_and_triples(medteb, tmp_path):
    code, out, err = medteb("assemble", *GIVEN, "data", *NAMED, "--test", "4")
    assert (code, err) == (0, "")
    assert "MedTEBRetrieval: 4 queries, 10 corpus, 4 qrels; revision " in out
    assert "training triples: 6" in out
    assert "MEDTEB_DATA=data mteb run -t MedTEBRetrieval -m MODEL" in out
    code, out, _ = medteb("edition", "verify", "data/MedTEBRetrieval")
    assert code == 0


def test_a_training_set_is_kept_out_of_the_test(medteb, tmp_path):
    write(
        "train.jsonl", [{"query": "感冒吃什么？", "positive": "x"}, {"query": "痛风吃什么", "positive": "y"}]
    )
    args = ["assemble", *GIVEN, "data", *NAMED, "--test", "10", "--against", "train.jsonl"]
    code, out, _ = medteb(*args, "--small", "--json")
    assert code == 0
    report = json.loads(out)
    assert report["editions"]["MedTEBRetrieval"]["counts"]["queries"] == 8
    assert report["statistics"]["test queries near a training query"] == 2
    args[4] = "other"
    code, _, err = medteb(*args, "--leaks", "fail")
    assert code == 2
    assert "2 test queries are near-duplicates of training queries" in err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--corpus", "some"], "corpus must be undisputed, labelled or all; got 'some'"),
        (["--against", "gone.jsonl"], "No training data at gone.jsonl"),
        (["--test", "0"], "must be positive"),
    ],
)
def test_mistakes_are_one_line(medteb, change, message):
    code, _, err = medteb("assemble", *GIVEN, "data", *NAMED, *change)
    assert code == 2
    assert err.count("\n") == 1
    assert message in err
