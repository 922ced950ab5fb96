"""Results of every source give one table."""

from __future__ import annotations

import shutil
from pathlib import Path

import ir_measures
import numpy as np
import pytest
from ir_measures import nDCG
from tests.medteb_mteb.compare.results import write, write_hakari, write_result

from mar_st.data.trec import write_qrels, write_run
from mar_st.errors import MarError
from medteb_mteb.compare.read import read_results

QRELS = {"q1": {"d1": 2, "d2": 1, "d9": 0}, "q2": {"d3": 1}, "q3": {"d4": 1}}
RUN = {"q1": {"d9": 3.0, "d1": 2.0, "d5": 1.0}, "q2": {"d3": 1.0}}


def test_results_of_medteb_run_have_scores_per_query_and_facts(tmp_path):
    values = [0.25, 0.5, 0.75]
    write_result(tmp_path, "org/good", "Task", values, ids=["b", "a", "c"], n_parameters=5)
    write_result(tmp_path, "org/plain", "Task", 0.25)
    results = read_results([tmp_path])
    good, plain = sorted(results.table.entries, key=lambda entry: entry.model)
    assert (good.score, good.ids, list(good.sample.values)) == (0.5, ("b", "a", "c"), values)
    assert (plain.score, plain.sample) == (0.25, None)
    assert results.table.models == ["org/good", "org/plain"]
    assert good.facts["n_parameters"] == 5
    assert (good.version, good.metric) == ("2.26.24", "ndcg_at_10")


def test_revisions_of_one_model_are_kept_apart(tmp_path):
    for revision, score in (("a" * 40, 0.5), ("b" * 40, 0.6)):
        write_result(tmp_path, "org/model", "Task", score, revision=revision)
    assert read_results([tmp_path]).table.models == ["org/model@bbbbbbbb", "org/model@aaaaaaaa"]


def test_rankings_of_one_name_on_several_tasks_are_one_system(tmp_path):
    for name, task, revision in (("a", "A", "1"), ("a", "B", "2"), ("b", "A", "3"), ("b", "A", "4")):
        write_result(tmp_path / revision, f"run/{name}", task, 0.5, revision=revision)
    sources = [tmp_path / revision for revision in "1234"]
    assert set(read_results(sources).table.models) == {"run/a", "run/b@3", "run/b@4"}


def test_an_experiment_of_mteb_is_a_system_of_its_own(tmp_path, monkeypatch):
    write_result(tmp_path, "org/model", "Task", 0.5)
    folder = tmp_path / "results/org__model/r1"
    shutil.copytree(folder, folder / "experiments" / "embed_dim_32")
    write_result(tmp_path, "org/model", "Task", 0.75)
    monkeypatch.chdir(tmp_path / "results")
    assert read_results([Path()]).table.models == ["org/model", "org/model embed_dim_32"]


def test_damaged_and_undefined_results_are_left_out(tmp_path, capsys):
    write_result(tmp_path, "m", "Good", 0.5)
    write_result(tmp_path, "m", "Undefined", float("nan"))
    (tmp_path / "results/m/r1/Torn.json").write_text('{"task_name": ')
    assert [entry.task for entry in read_results([tmp_path]).table.entries] == ["Good"]
    assert capsys.readouterr().err.count("left out") == 2


def test_rankings_are_scored_as_ir_measures_scores_them(tmp_path):
    write_qrels(tmp_path / "judged.qrels", QRELS)
    (tmp_path / "runs").mkdir()
    write_run(tmp_path / "runs" / "trec.run", RUN)
    write_run(tmp_path / "runs" / "beir.json", RUN)
    results = read_results([tmp_path / "runs"], qrels=tmp_path / "judged.qrels")
    expected = {one.query_id: one.value for one in ir_measures.iter_calc([nDCG @ 10], QRELS, RUN)} | {
        "q3": 0.0
    }
    assert results.table.models == ["beir", "trec"]
    for entry in results.table.entries:
        assert entry.task == "judged"
        assert dict(zip(entry.ids, entry.sample.values, strict=True)) == pytest.approx(expected)
        assert entry.score == pytest.approx(np.mean(list(expected.values())))


def test_rankings_take_the_judgements_of_a_data_folder(tmp_path, make_folder):
    folder = make_folder("Retrieval")
    write_run(tmp_path / "system.trec", {"q1": {"d1": 1.0}})
    results = read_results([tmp_path / "system.trec"], data=[folder])
    assert results.table.tasks == ["tiny-retrieval"]
    assert results.folders["tiny-retrieval"].revision == results.table.entries[0].dataset_revision


def test_a_querys_own_document_is_left_out_of_a_ranking_if_the_card_says_so(tmp_path, make_folder):
    folder = make_folder("Retrieval")
    (folder / "README.md").write_text("---\nmedteb: {ignore_identical_ids: true}\n---\n", encoding="utf-8")
    run = {"q1": {"d1": 1.0, "d2": 0.5}}
    write_run(tmp_path / "plain.trec", run)
    write_run(tmp_path / "own.trec", {"q1": {"q1": 2.0, **run["q1"]}})
    (score,) = {
        read_results([tmp_path / name], data=[folder]).table.entries[0].score
        for name in ("plain.trec", "own.trec")
    }
    assert score > 0


def test_files_of_hakari_bench_have_scores_per_query_if_their_ranking_gives_the_score(tmp_path):
    run = {"q1": ["d1", "d2"], "q2": ["d5", "d3"]}
    relevant = {"q1": ["d1"], "q2": ["d3"]}
    second = 1 / np.log2(3)
    write_hakari(tmp_path / "a" / "set" / "medical.json", "org/a", "medical", run, relevant, (1 + second) / 2)
    write_hakari(tmp_path / "b" / "set" / "medical.json", "org/b", "medical", run, relevant, 0.9)
    a, b = sorted(read_results([tmp_path]).table.entries, key=lambda entry: entry.model)
    assert list(a.sample.values) == pytest.approx([1, second])
    assert (b.score, b.sample) == (0.9, None)


def test_what_is_no_result_is_refused(tmp_path):
    for source in (tmp_path, tmp_path / "absent", write(tmp_path / "list.json", [])):
        with pytest.raises(MarError, match=str(source)):
            read_results([source])
    write_run(tmp_path / "x.trec", RUN)
    with pytest.raises(MarError, match="--qrels"):
        read_results([tmp_path / "x.trec"])
    write_result(tmp_path / "one", "m", "Task", 0.5)
    write_result(tmp_path / "two", "m", "Task", 0.6)
    with pytest.raises(MarError, match="two results"):
        read_results([tmp_path / "one", tmp_path / "two"])
