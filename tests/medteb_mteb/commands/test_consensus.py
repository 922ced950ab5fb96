from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest


def write(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


@pytest.fixture
def judged(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "queries.jsonl", [{"_id": f"q{i}", "text": f"发烧{i}天怎么办"} for i in range(6)])
    write(tmp_path / "documents.jsonl", [{"_id": f"d{i}", "text": f"多休息，方案{i}。"} for i in range(4)])
    grades = ("SSA", "SAB", "CCD", "DDD")
    write(
        tmp_path / "judgements.jsonl",
        [
            {"query-id": f"q{i}", "corpus-id": f"d{j}", "judge": judge, "grade": grade}
            for i in range(6)
            for j, letters in enumerate(grades)
            for judge, grade in zip(("gpt", "doubao", "deepseek"), letters, strict=True)
        ],
    )


def test_judgements_become_labels_that_a_review_confirms(medteb, judged, tmp_path):
    code, out, err = medteb("consensus", "judgements.jsonl", "labels")
    assert (code, err) == (0, "")
    assert "discarded: judges disagree                      6" in out
    assert "Gwet's AC1" in out
    rows = [
        json.loads(line) for line in (tmp_path / "labels" / "labels.jsonl").read_text("utf-8").splitlines()
    ]
    assert [row["relevance"] for row in rows[:4]] == [1, None, 0, 0]
    assert rows[1]["reason"] == "judges disagree"

    code, out, _ = medteb("review", "export", "labels", "queries.jsonl", "documents.jsonl", "sheet.csv")
    assert code == 0
    assert "18 pairs in sheet.csv" in out
    for name in ("li.csv", "wang.csv"):
        with Path("sheet.csv").open(encoding="utf-8-sig", newline="") as blank:
            rows = list(csv.DictReader(blank))
        with Path(name).open("w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, rows[0])
            writer.writeheader()
            writer.writerows({**row, "answer": "S" if "方案0" in row["document"] else "D"} for row in rows)
    code, out, _ = medteb("review", "import", "sheet.csv", "li.csv", "wang.csv")
    assert code == 0
    assert "agreement with the labels 100.0% [62.3%, 100.0%]" in out
    assert "Fleiss' kappa 1.000 among them, 1.000 with the labels" in out
    code, out, _ = medteb("review", "import", "sheet.csv", "li.csv", "--json")
    assert json.loads(out)["pairs"] == 18


def test_rule_and_judges_can_be_chosen_and_json_is_printed(medteb, judged):
    settings = ["--rule", "weighted", "--weight", "gpt=3", "--json"]
    code, out, _ = medteb("consensus", "judgements.jsonl", "labels", *settings)
    assert code == 0
    assert json.loads(out)["labels"] == {"positive": 12, "negative": 12}
    code, out, _ = medteb("consensus", "judgements.jsonl", "one", "--judge", "gpt")
    assert code == 0
    assert "Agreement needs at least two judges; got gpt." in out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["consensus", "gone.jsonl", "out"], "There is no gone.jsonl"),
        (["consensus", "judgements.jsonl", "out", "--rule", "mean"], "'mean' is not a rule"),
        (["consensus", "judgements.jsonl", "out", "--rule", "weighted", "--weight", "gpt"], "JUDGE=WEIGHT"),
        (
            ["review", "export", "gone", "queries.jsonl", "documents.jsonl", "s.csv"],
            "'medteb consensus' writes it",
        ),
        (["review", "import", "s.csv", "a/x.csv", "b/x.csv"], "files have one name"),
        (["review", "import", "s.csv", "x.csv"], "There is no s.key.json"),
    ],
)
def test_mistakes_are_one_line(medteb, judged, args, message):
    code, _, err = medteb(*args)
    assert code == 2
    assert err.startswith("medteb: error: ")
    assert err.count("\n") == 1
    assert message in err


def test_one_pair_without_a_grade_is_counted_in_the_singular(medteb, judged, tmp_path):
    first, *rows = (tmp_path / "judgements.jsonl").read_text("utf-8").splitlines()
    (tmp_path / "judgements.jsonl").write_text("\n".join(rows), encoding="utf-8")
    (tmp_path / "failed.jsonl").write_text(first, encoding="utf-8")
    (tmp_path / "manifest.json").write_text('{"judges": {"gpt": {}, "doubao": {}, "deepseek": {}}}')
    code, out, _ = medteb("consensus", "judgements.jsonl", "labels")
    assert code == 0
    assert "gpt gave no grade for 1 pair\n" in out
