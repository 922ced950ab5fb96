from __future__ import annotations

import json

import numpy as np
import pytest

from medteb_mteb.report.intervals import CorrelationSample, MeanSample
from medteb_mteb.report.table import ResultTable, ScoreEntry


def entry(model, task, values, **changes):
    values = np.asarray(values, dtype=float)
    fields = {
        "model": model,
        "model_revision": "r",
        "task": task,
        "metric": "ndcg_at_10",
        "score": float(values.mean()),
        "dataset_revision": "data",
        "sample": MeanSample(values),
    }
    return ScoreEntry(**{**fields, **changes})


def make_table():
    rng = np.random.default_rng(0)
    strong, weak = rng.uniform(0.5, 1, 50), rng.uniform(0, 0.5, 50)
    entries = [
        entry("a", "T1", strong),
        entry("b", "T1", weak),
        entry("a", "T2", [0.5, 0.7], sample=None, note="because", metric="v_measure"),
    ]
    return ResultTable(["a", "b"], ["T1", "T2"], entries), strong, weak


def test_markdown_shows_scores_intervals_gaps_and_means_only_of_whole_rows():
    table, strong, weak = make_table()
    header, rule, first, second = table.to_markdown().splitlines()
    assert header == "| model | T1 (nDCG@10) | T2 (v measure) | mean |"
    assert rule == "| --- | ---: | ---: | ---: |"
    interval = table.entries[0].interval
    mean = (strong.mean() + 0.6) / 2
    assert first == (
        f"| a | {strong.mean():.4f} [{interval.low:.4f}, {interval.high:.4f}] | 0.6000 | {mean:.4f} |"
    )
    assert second.startswith(f"| b | {weak.mean():.4f} [")
    assert second.endswith("] | - | - |")


def test_an_undefined_score_is_named_and_has_no_mean():
    undefined = entry("a", "T1", [0.5], score=float("nan"), sample=None, metric="cosine_spearman")
    table = ResultTable(["a"], ["T1", "T2"], [undefined, entry("a", "T2", [0.5])], {"all": [["T1", "T2"]]})
    assert table.to_markdown().splitlines()[-1] == "| a | undefined | 0.5000 | - | - |"
    (row,) = json.loads(json.dumps(table.to_json(), allow_nan=False))["rows"]
    assert (row["scores"]["T1"]["score"], row["mean"], row["averages"]) == (None, None, {"all": None})


def test_json_is_strict_and_says_how_intervals_were_made():
    table, strong, _ = make_table()
    document = json.loads(json.dumps(table.to_json(), allow_nan=False))
    cell = document["rows"][0]["scores"]["T1"]
    assert cell["low"] < cell["score"] == strong.mean() < cell["high"]
    other = document["rows"][0]["scores"]["T2"]
    assert (other["score"], other["low"], other["note"]) == (0.6, None, "because")
    assert document["rows"][1]["mean"] is None
    (comparison,) = document["comparisons"]
    assert (comparison["task"], comparison["model"], comparison["other"]) == ("T1", "a", "b")
    assert comparison["low"] > 0


def test_results_of_different_data_are_not_compared():
    values = np.linspace(0, 1, 10)
    entries = [entry("a", "T", values), entry("b", "T", values, dataset_revision="other")]
    assert ResultTable(["a", "b"], ["T"], entries).comparisons == []


def test_holes_stand_beside_the_score_and_give_a_warning():
    few = {"judged_at_10": 0.136, "condensed_ndcg_at_10": 0.658, "bpref": 0.5}
    unknown = dict.fromkeys(few)
    entries = [
        entry("a", "T1", [0.1, 0.2], holes=few),
        entry("b", "T1", [0.1, 0.2], holes=few | {"judged_at_10": 0.8}),
        entry("a", "T2", [0.1, 0.2], holes=unknown),
    ]
    table = ResultTable(["a", "b"], ["T1", "T2"], entries)
    header, _, first, second = table.to_markdown().splitlines()
    assert "| T1 (nDCG@10) | judged@10 | condensed nDCG@10 | bpref | T2 (nDCG@10) | mean |" in header
    assert "| 0.1360 | 0.6580 | 0.5000 |" in first
    assert "| 0.8000 | 0.6580 | 0.5000 | - |" in second
    (low,) = [line for line in table.notes() if line.startswith("warning")]
    assert "T1, a: only 13.6% of the first 10 documents were judged" in low
    assert table.to_json()["rows"][0]["scores"]["T1"]["holes"] == few
    assert table.to_json()["rows"][0]["scores"]["T2"]["holes"] == unknown


def test_an_average_is_the_mean_of_the_means_of_its_groups():
    scores = {"T1": 0.2, "T2": 0.4, "T3": 0.9}
    entries = [entry("a", task, [score, score]) for task, score in scores.items()]
    entries.append(entry("b", "T1", [0.5, 0.5]))
    averages = {"two": [["T1", "T2"]], "types": [["T1", "T2"], ["T3"]], "more": [["T1", "T4"]]}
    table = ResultTable(["a", "b"], ["T1", "T2", "T3"], entries, averages)
    assert [table.average("a", name) for name in averages] == [pytest.approx(0.3), pytest.approx(0.6), None]
    header, _, first, second = table.to_markdown().splitlines()
    assert header.endswith("| mean | two | types | more |")
    assert first.endswith("| 0.5000 | 0.3000 | 0.6000 | - |")
    assert second.endswith("| - | - | - | - |")
    assert table.to_json()["rows"][1]["averages"] == {"two": None, "types": None, "more": None}


def test_a_comparison_that_is_undefined_is_left_out():
    gold = np.arange(6.0)
    samples = {"a": gold, "b": np.ones(6), "c": -gold}
    entries = [
        entry(model, "T", [0.5], sample=CorrelationSample(gold, values, "spearman"))
        for model, values in samples.items()
    ]
    table = ResultTable(["a", "b", "c"], ["T"], entries)
    assert [other for _, _, other, _ in table.comparisons] == ["c"]
    assert len(table.to_json()["comparisons"]) == 1
