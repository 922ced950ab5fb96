"""Slices, shared questions and unjudged documents."""

from __future__ import annotations

import numpy as np
import pytest
from tests.conftest import write_jsonl, write_judged
from tests.medteb_mteb.compare.results import write_result

from mar_st.data.trec import write_run
from mar_st.errors import MarError
from medteb_mteb.compare.analysis import AVERAGE, Analysis
from medteb_mteb.compare.read import read_results
from medteb_mteb.folders.content import read_folder

RNG = np.random.default_rng(0)


def write_task(folder, queries, negatives=()):
    """Write a retrieval task whose query `qN` has the relevant document `dN`."""
    numbers = range(len(queries))
    documents = [{"_id": f"d{number}", "text": f"document {number}"} for number in range(2 * len(queries))]
    write_jsonl(folder / "corpus.jsonl", documents)
    write_jsonl(folder / "queries.jsonl", [{"_id": f"q{number}", **queries[number]} for number in numbers])
    write_judged(folder, [(f"q{number}", f"d{number}", 1) for number in numbers])
    if negatives:
        write_judged(folder, [(*pair, 0) for pair in negatives], "labels.tsv")
    return folder


def analysed(tmp_path, tasks, systems=("a", "b"), **options):
    """Analyse random scores of systems on the tasks of some folders."""
    for folder in tasks:
        content = read_folder(folder)
        ids = [query["id"] for query in content.retrieval.queries]
        for system in systems:
            values = RNG.uniform(0, 1, len(ids))
            write_result(tmp_path / "out", system, folder.name, values, ids=ids, data=content.revision)
    return Analysis(read_results([tmp_path / "out"], data=tasks), **options)


def test_slices_are_means_over_their_queries(tmp_path):
    queries = [
        {"text": "x" * (8 if n < 6 else 30), "department": "ab"[n % 2], "date": f"2026-0{1 + n // 10}-03"}
        for n in range(20)
    ]
    analysis = analysed(tmp_path, [write_task(tmp_path / "task", queries)])
    found = {(one.by, one.value): one for one in analysis.slices}
    assert {key: one.queries for key, one in found.items()} == {
        ("length", "1-10"): 6, ("length", "21-40"): 14, ("department", "a"): 10, ("department", "b"): 10,
        ("date", "2026-01"): 10, ("date", "2026-02"): 10,
    }  # fmt: skip
    entry = analysis.entry("a", "task")
    by_query = dict(zip(entry.ids, entry.sample.values, strict=True))
    expected = [by_query[f"q{n}"] for n in range(6)]
    score, low, high = found["length", "1-10"].scores["a"]
    assert score == pytest.approx(np.mean(expected))
    assert low < score < high


def test_other_data_than_those_scored_give_no_slices(tmp_path):
    queries = [{"text": "x" * number} for number in range(5, 30)]
    write_result(tmp_path / "out", "a", "task", RNG.uniform(0, 1, 25), data="of last year")
    results = read_results([tmp_path / "out"], data=[write_task(tmp_path / "task", queries)])
    assert Analysis(results).slices == []


def test_a_question_of_two_tasks_counts_once_in_the_average(tmp_path):
    first = [{"text": f"question {number}"} for number in range(20)]
    second = [{"text": f"Question {number}!"} for number in range(10, 40)]
    tasks = [write_task(tmp_path / "one", first), write_task(tmp_path / "two", second)]
    by_task = dict(analysed(tmp_path, tasks).compared)
    assert (by_task["one"].questions, by_task["two"].questions) == (20, 30)
    assert by_task[AVERAGE].questions == 40
    means = [by_task[task].drawn["a"].score for task in ("one", "two")]
    assert by_task[AVERAGE].drawn["a"].score == pytest.approx(np.mean(means))


def test_systems_without_all_tasks_are_not_in_the_average(tmp_path):
    write_result(tmp_path, "a", "one", RNG.uniform(0, 1, 9))
    write_result(tmp_path, "b", "one", RNG.uniform(0, 1, 9))
    write_result(tmp_path, "a", "two", RNG.uniform(0, 1, 9))
    assert [task for task, _ in Analysis(read_results([tmp_path])).compared] == ["one"]


def test_bounds_say_what_unjudged_documents_could_change(tmp_path):
    folder = write_task(tmp_path / "task", [{"text": "one"}, {"text": "two"}], [("q0", "d3")])
    run = {"q0": {"d3": 3.0, "d0": 2.0}, "q1": {"d2": 2.0, "d1": 1.0}}
    write_run(tmp_path / "system.trec", run)
    analysis = Analysis(read_results([tmp_path / "system.trec"], data=[folder]))
    bounds = analysis.bounds["system", "task"]
    second = 1 / np.log2(3)
    assert bounds.judged == pytest.approx(0.75)
    assert bounds.low == pytest.approx(second)
    # q1: both relevant; q0's first is judged irrelevant
    assert bounds.high == pytest.approx((second + 1) / 2)


def test_an_unknown_baseline_is_refused(tmp_path):
    write_result(tmp_path, "a", "one", RNG.uniform(0, 1, 9))
    with pytest.raises(MarError, match="bm25"):
        Analysis(read_results([tmp_path]), "bm25")
