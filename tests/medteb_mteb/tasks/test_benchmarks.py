from __future__ import annotations

import statistics

import mteb
import pytest
from mteb.abstasks.retrieval import AbsTaskRetrieval

from medteb_mteb.tasks import DataUnavailableError

PACKAGED = ["MedTEBRetrieval", "MedTEBReranking", "MedTEBSTS"]
CMEDQA = ["CMedQAv1-reranking", "CMedQAv2-reranking"]


def names(benchmark) -> list[str]:
    return [task.metadata.name for task in benchmark.tasks]


def test_benchmarks_list_their_tasks_in_the_order_they_run():
    assert names(mteb.get_benchmark("MedTEB(cmn, v1)")) == PACKAGED + CMEDQA
    assert names(mteb.get_benchmark("MedTEB(cmn, mini)")) == PACKAGED
    assert {"MedTEB(cmn, v1)", "MedTEB(cmn, mini)"} <= {b.name for b in mteb.get_benchmarks()}
    assert len(mteb.get_benchmark("MedTEB(cmn, v1)")) == 5


def test_tasks_follow_the_data_variable(data_root, monkeypatch):
    benchmark = mteb.get_benchmark("MedTEB(cmn, mini)")
    before = benchmark.tasks
    assert benchmark.tasks is before
    assert before[0].edition.path == data_root / "MedTEBRetrieval"
    monkeypatch.delenv("MEDTEB_DATA")
    assert benchmark.tasks is not before
    assert before[0].metadata.revision not in {task.metadata.revision for task in benchmark.tasks}


def test_a_listing_may_sort_the_tasks(data_root):
    benchmark = mteb.get_benchmark("MedTEB(cmn, mini)")
    made = benchmark.tasks
    benchmark.tasks = sorted(made, key=lambda task: task.metadata.name)  # as available-benchmarks does
    assert names(benchmark) == sorted(PACKAGED)
    benchmark.tasks = made


def test_the_score_is_the_plain_mean(data_root, tmp_path):
    benchmark = mteb.get_benchmark("MedTEB(cmn, mini)")
    cache = mteb.ResultCache(tmp_path)
    model = mteb.get_model("bm25-char-bigram")
    run = mteb.evaluate(model, benchmark.tasks, cache=cache, show_progress_bar=False)
    results = cache.load_results(tasks=benchmark)
    (scores,) = benchmark.get_score(results).values()
    expected = statistics.fmean(result.get_score() for result in run.task_results)
    assert scores["Mean(Task)"] == pytest.approx(expected, abs=1e-6)


def test_a_task_that_cannot_be_fetched_does_not_lose_the_others(data_root, tmp_path, monkeypatch):
    def offline(*args, **kwargs):
        raise ConnectionError("Couldn't reach the Hub")

    monkeypatch.setattr(AbsTaskRetrieval, "load_data", offline)
    cache = mteb.ResultCache(tmp_path / "results")
    with pytest.raises(DataUnavailableError, match="CMedQAv1-reranking could not be fetched"):
        mteb.evaluate(
            mteb.get_model("bm25-char-bigram"),
            mteb.get_benchmark("MedTEB(cmn, v1)").tasks,
            cache=cache,
            show_progress_bar=False,
        )
    saved = {path.stem for path in cache.cache_path.rglob("*.json")} - {"model_meta"}
    assert saved == set(PACKAGED)
