"""`medteb benchmarks`, and runs of benchmarks whose data are partly there."""

from __future__ import annotations

import json
import re

import pytest
from mteb.abstasks.retrieval import AbsTaskRetrieval
from tests.medteb_mteb.nano.sets import write_split

from medteb_mteb.tasks.benchmarks import BENCHMARKS


@pytest.fixture
def offline(monkeypatch):
    def fail(*args, **kwargs):
        raise ConnectionError("Couldn't reach the Hub\nsecond line")

    monkeypatch.setattr(AbsTaskRetrieval, "load_data", fail)
    monkeypatch.setattr("datasets.load_dataset", fail)


def test_every_benchmark_is_listed_with_what_it_needs(medteb, data_root, tmp_path, monkeypatch):
    code, out, _ = medteb("benchmarks", "--json")
    assert code == 0
    rows = {row["name"]: row for row in json.loads(out)}
    assert {benchmark.name for benchmark in BENCHMARKS.values()} < set(rows)
    assert rows["MedTEB(cmn, v1)"]["needs"] == {"network": 2, "nothing": 3}
    nano = rows["NanoCMTEB"]
    assert (nano["tasks"], nano["queries"], nano["documents"]) == (8, 1600, 80_000)
    assert (nano["languages"], nano["needs"]) == (["cmn"], {"network": 8})
    assert nano["paper"] == "https://arxiv.org/abs/2606.22778"
    assert rows["R2MED"]["documents"] == 357_080  # of mteb's statistics
    assert rows["MedTEB(eng, v1)"]["needs"] == {"an LLM": 6, "credentials": 26, "network": 19}
    english = rows["MedTEB(eng, v1)"]
    assert (english["queries"], english["sized"], english["sizeable"]) == (None, 0, 12)
    graded = rows["BMRetriever(eng, v1)"]
    assert 0 < graded["sized"] < graded["sizeable"]
    assert graded["documents"] > 171_332 + 25_657
    write_split(tmp_path / "other" / "NanoCMTEB", "medical")
    monkeypatch.setenv("MEDTEB_DATA", str(tmp_path / "other"))
    code, out, _ = medteb("benchmarks", "--json")
    assert {row["name"]: row for row in json.loads(out)}["NanoCMTEB"]["needs"] == {
        "network": 7,
        "nothing": 1,
    }
    code, out, _ = medteb("benchmarks")
    assert "R2MED\n  tasks      8\n  size       655 queries, 357,080 documents\n" in out
    assert "MedTEB(eng, v1)\n  tasks      51\n  size       unknown until the data are there\n" in out
    assert re.search(r"in the \d of \d+ retrieval and reranking tasks whose size is known", out)


def test_a_benchmark_runs_what_can_be_run_and_lists_the_rest(medteb, data_root, tmp_path, offline):
    args = (
        "run",
        "-b",
        "MedTEB(cmn, v1)",
        "-m",
        "bm25-char-bigram",
        "--output-folder",
        tmp_path,
        "-q",
        "--json",
    )
    code, out, error = medteb(*args)
    assert code == 0
    report = json.loads(out)
    assert report["tasks"] == ["MedTEBRetrieval", "MedTEBReranking", "MedTEBSTS"]
    assert set(report["left_out"]) == {"CMedQAv1-reranking", "CMedQAv2-reranking"}
    assert "Couldn't reach the Hub" in report["left_out"]["CMedQAv1-reranking"]
    assert "left out: CMedQAv2-reranking: " in error
    saved = {path: path.stat().st_mtime_ns for path in tmp_path.glob("results/**/MedTEB*.json")}
    assert len(saved) == 3
    again = json.loads(medteb(*args)[1])  # continues where it stopped
    assert again["rows"] == report["rows"]
    assert {path: path.stat().st_mtime_ns for path in saved} == saved


def test_with_nothing_to_run_it_fails(medteb, tmp_path, monkeypatch, offline):
    monkeypatch.delenv("MEDTEB_DATA", raising=False)
    code, out, error = medteb(
        "run", "-b", "NanoCMTEB", "-m", "bm25-char-bigram", "--output-folder", tmp_path, "--json"
    )
    assert code == 1
    assert len(json.loads(out)["left_out"]) == 8
    assert error.count("left out: ") == 8
    assert "hf download" in error


def test_a_task_asked_for_by_name_fails(medteb, data_root, tmp_path, offline):
    args = ("-t", "CMedQAv1-reranking", "-b", "MedTEB(cmn, v1)", "-m", "bm25-char-bigram", "--json", "-q")
    code, out, error = medteb("run", *args, "--output-folder", tmp_path)
    assert code == 1
    assert set(json.loads(out)["left_out"]) == {"CMedQAv2-reranking"}
    assert "failed: medteb/bm25-char-bigram on CMedQAv1-reranking" in error


def test_damaged_data_are_an_error_and_not_left_out(medteb, data_root, tmp_path, offline):
    write_split(data_root / "NanoCMTEB", "medical")
    (data_root / "NanoCMTEB" / "corpus" / "medical.parquet").write_bytes(b"broken")
    args = ("run", "-b", "NanoCMTEB", "-m", "bm25-char-bigram", "--output-folder", tmp_path, "--json", "-q")
    code, _, error = medteb(*args)
    assert code == 1
    assert "on NanoCMTEBMedicalRetrieval: " in error
    assert "not readable as Parquet" in error
