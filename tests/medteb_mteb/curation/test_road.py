"""The whole road through the commands: pools, judges over HTTP, labels, editions, an audit."""

from __future__ import annotations

import json

import pytest
import rule_judges
import yaml
from tests.medteb_mteb.curation.diseases import DISEASES

from mar_st.data import read_source
from mar_st.recipes.schema import Data


@pytest.fixture
def succeed(medteb, monkeypatch, tmp_path):
    """Runs a command in a folder of the test; gives what it printed."""
    monkeypatch.chdir(tmp_path)

    def call(*args, code=0):
        status, out, err = medteb(*args)
        assert status == code, err
        return out

    return call


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


@pytest.fixture
def texts(tmp_path):
    questions = ("不能吃什么", "怎么治疗", "会传染吗")
    write(
        tmp_path / "queries.jsonl",
        [
            {"_id": f"q{i}{j}", "text": f"{d}{a}"}
            for i, d in enumerate(DISEASES)
            for j, a in enumerate(questions)
        ],
    )
    answers = (
        "患者不能吃辛辣油腻的东西。",
        "的治疗以休息和按时用药为主。",
        "一般不会传染给家人。",
        "是常见病。",
    )
    write(
        tmp_path / "documents.jsonl",
        [
            {"_id": f"d{i}{j}", "text": f"{d}{a}"}
            for i, d in enumerate(DISEASES)
            for j, a in enumerate(answers)
        ],
    )


def judges_file(path, url, names):
    content = {"judges": [{"name": name, "model": name, "base_url": url} for name in names]}
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


NAMES = ("rule-words", "rule-generous", "rule-strict")


@pytest.mark.thorough
def test_texts_become_editions_and_triples(succeed, texts, tmp_path):
    succeed("pool", "queries.jsonl", "documents.jsonl", "pools", "-r", "bm25", "--size", "12", "-q")
    with rule_judges.serving(rule_judges.Endpoint()) as url:
        judges = judges_file(tmp_path / "judges.yaml", url, NAMES)
        judging = [
            "judge",
            "queries.jsonl",
            "documents.jsonl",
            "pools/pools.jsonl",
            "judged",
            "--judges",
            judges,
        ]
        assert "nothing was sent" in succeed(*judging, "--dry-run")
        succeed(*judging, "-q", code=2)  # the texts have passed no anonymiser
        succeed(*judging, "-q", "--already-anonymous")
    succeed("consensus", "judged", "labels")
    given = ["labels", "queries.jsonl", "documents.jsonl", "data", "--name", "road", "--license", "mit"]
    report = json.loads(succeed("assemble", *given, "--test", "0.4", "--small", "--json"))
    counts = report["editions"]["MedTEBRetrieval"]["counts"]
    assert counts["queries"] > 3
    assert report["triples"] > 3
    result = json.loads(
        succeed("run", "--data", "data/MedTEBRetrieval", "-m", "bm25-char-bigram", "-q", "--json")
    )
    assert result["errors"] == []
    source = read_source(Data(name="road", path="data/train/triples.jsonl", prompt=""), 0)
    assert len(source.triples) == report["triples"]


@pytest.mark.thorough
def test_an_audit_finds_what_the_qrels_miss(succeed, texts, tmp_path):
    folder = tmp_path / "clinic"
    folder.mkdir()
    for name, target in (("queries", "queries"), ("documents", "corpus")):
        (folder / f"{target}.jsonl").write_bytes((tmp_path / f"{name}.jsonl").read_bytes())
    # The third question of a disease has only a wrong answer in the qrels.
    rows = [f"q{i}{j}\td{i}{3 if j == 2 else j}\t1" for i in range(len(DISEASES)) for j in range(3)]
    (folder / "qrels").mkdir()
    (folder / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]) + "\n")
    with rule_judges.serving(rule_judges.Endpoint()) as url:
        judges = judges_file(tmp_path / "judges.yaml", url, NAMES)
        args = ["audit", "clinic", "audited", "--judges", judges, "-r", "bm25", "--depth", "8", "-q"]
        assert "nothing was sent" in succeed(*args, "--dry-run")
        report = json.loads(succeed(*args, "--already-anonymous", "--json"))
    assert report["means"]["false_negatives"][0] > 0.2
    assert report["means"]["released"][0] > report["means"]["false_positives"][0] > 0
    missed = {row["query"] for row in report["queries"] if row["false_negatives"]}
    assert {f"q{i}2" for i in range(len(DISEASES))} <= missed
    # Nothing is asked again: the server is gone.
    again = succeed(*args, "--already-anonymous")
    assert "corrected edition: audited/clinic-corrected" in again
    result = json.loads(
        succeed("run", "--data", "audited/clinic-corrected", "-m", "bm25-char-bigram", "-q", "--json")
    )
    assert result["errors"] == []
    edition = tmp_path / "audited" / "clinic-corrected"
    provenance = json.loads((edition / "provenance.json").read_text("utf-8"))
    assert [one["name"] for one in provenance["judges"]] == sorted(NAMES)
    assert all(one["answered"] for one in provenance["judges"])
    assert [one["name"] for one in provenance["retrievers"]] == ["bm25"]
    (rule,) = provenance["consensus"]
    assert rule["rule"] == "unanimous"
    assert sum(rule["labels"].values()) == sum(row["judged"] + row["undecided"] for row in report["queries"])
    assert rule["agreement"] == report["agreement"]["labels"]
    assert "croissant" in (edition / "croissant.json").read_text("utf-8")
