"""Registration with mteb: what it adds, what it refuses, and that it can be undone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from importlib import import_module
from pathlib import Path

import mteb
import pytest
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.models import ModelMeta

import medteb_mteb
from mar_st.errors import MarError
from medteb_mteb import plugin as registry
from medteb_mteb.editions import find_edition, write_manifest

OURS = ["MedTEBReranking", "MedTEBRetrieval", "MedTEBSTS"]


def make_task(name: str, **fields) -> type[AbsTaskRetrieval]:
    metadata = TaskMetadata(
        name=name, description="", type="Retrieval", eval_langs=["cmn-Hans"], main_score="ndcg_at_10",
        dataset={"path": "nowhere", "revision": "1"}, **fields,
    )  # fmt: skip
    return type(name, (AbsTaskRetrieval,), {"metadata": metadata})


def test_tasks_are_registered_at_run_time():
    task = make_task("RunTimeTask", adapted_from=["NFCorpus"])
    medteb_mteb.register_tasks([task()])
    medteb_mteb.register_tasks([task])  # the same class again
    assert isinstance(mteb.get_task("RunTimeTask"), task)
    module = import_module("mteb.get_tasks")
    assert module._SIMILAR_TASKS["NFCorpus"].count("RunTimeTask") == 1
    assert module.TASK_LIST.count(task) == 1


def test_a_duplicate_refuses_the_whole_call():
    before = dict(import_module("mteb.get_tasks")._TASKS_REGISTRY)
    for names in (["NewTask", "NFCorpus"], ["NewTask", "NewTask"]):
        with pytest.raises(MarError, match="is registered already"):
            registry.register_tasks([make_task(name) for name in names])
    assert before == import_module("mteb.get_tasks")._TASKS_REGISTRY


@pytest.mark.parametrize(
    "alias", ["mar-mini", "mar-0.3b-4b", "mar-0.3b-8b", "bm25-jieba", "bm25-char-bigram", "bm25-english"]
)
def test_models_are_found_by_names_without_an_organisation(alias):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # mteb's table of renamed models would warn
        meta = mteb.get_model_meta(alias)
    assert meta.name == f"medteb/{alias}"
    assert meta is mteb.get_model_meta(f"medteb/{alias}")
    names = [meta.name for meta in mteb.get_model_metas()]
    assert names.count(f"medteb/{alias}") == 1
    assert alias not in names


def test_the_hub_is_never_asked_for_names_of_this_project(no_hub):
    meta = mteb.get_model_meta("medteb/mar-mini")
    assert ModelMeta.from_hub("medteb/mar-mini").name == "medteb/mar-mini"
    with pytest.warns(DeprecationWarning, match="fill_missing"):  # mteb's own
        filled = mteb.get_model_meta("mar-mini", fetch_from_hf=True, fill_missing=True)
    assert filled.name == "medteb/mar-mini"
    assert meta.calculate_num_parameters_from_hub() == meta.n_parameters
    meta.calculate_memory_usage_mb(fetch_from_hf=True)
    with pytest.raises(ValueError, match="no Hub repository"):
        meta.push_eval_results()


def test_the_hub_is_not_asked_for_unknown_names_of_this_project(no_hub):
    with pytest.raises(KeyError, match="Did you mean: 'medteb/mar-mini'"):
        mteb.get_model("medteb/mar-mimi")


def test_the_saved_score_and_its_file_are_logged(data_root, tmp_path, caplog):
    caplog.set_level("INFO", "mteb.medteb")
    model, cache = mteb.get_model("bm25-char-bigram"), mteb.ResultCache(tmp_path / "results")
    result = mteb.evaluate(model, mteb.get_task("MedTEBSTS"), cache=cache, show_progress_bar=False)
    score = result.task_results[0].get_score()
    (line,) = [record.getMessage() for record in caplog.records if record.name == "mteb.medteb"]
    assert line.startswith(f"MedTEBSTS: cosine_pearson = {score:.4f}, saved in {tmp_path}")
    assert Path(line.rpartition(" in ")[2]).is_file()


def test_other_names_still_go_to_the_hub(monkeypatch):
    model_meta = import_module("mteb.models.model_meta")
    monkeypatch.setattr(model_meta, "_repo_exists", lambda name: False)
    with pytest.warns(UserWarning, match="someone/model"):
        assert ModelMeta.from_hub("someone/model").name == "someone/model"


@pytest.mark.thorough
def test_results_of_two_editions_do_not_mix(data_root, tmp_path):
    cache = mteb.ResultCache(tmp_path / "results")
    model = mteb.get_model("bm25-char-bigram")

    def evaluate() -> tuple[str, float]:
        result = mteb.evaluate(model, mteb.get_task("MedTEBRetrieval"), cache=cache, show_progress_bar=False)
        return result.task_results[0].dataset_revision, result.task_results[0].get_score()

    first = evaluate()
    assert evaluate() == first
    swap = data_root / "MedTEBRetrieval/qrels/test.tsv"
    swap.write_text("query-id\tcorpus-id\tscore\nq1\td5\t1\nq2\td6\t1\nq3\td5\t1\n")
    write_manifest(
        swap.parents[1], task="MedTEBRetrieval", name="mini", version="2", licence="mit", counts={}
    )
    second = evaluate()
    assert second[0] == find_edition("MedTEBRetrieval").digest != first[0]
    assert second[1] == 0 < first[1]


def test_folders_of_the_environment_become_tasks(make_folder, tmp_path, monkeypatch):
    make_folder("Retrieval", "clinic-of-the-environment")
    (tmp_path / "empty").mkdir()
    monkeypatch.setattr(registry, "_folders_done", False)
    folders = f"{tmp_path / 'empty'}:{tmp_path / 'clinic-of-the-environment'}"
    monkeypatch.setenv("MEDTEB_TASKS", folders)
    with pytest.warns(RuntimeWarning, match="MEDTEB_TASKS: 1 of 2 folders left out.*empty") as caught:
        registry.register()
    assert len([w for w in caught if issubclass(w.category, RuntimeWarning)]) == 1
    assert mteb.get_task("clinic-of-the-environment").metadata.type == "Retrieval"


def command(*arguments: str) -> None:
    """Runs one of mteb's own commands in this process."""
    from mteb.cli.build_cli import build_cli

    parsed = build_cli().parse_args(arguments)
    parsed.func(parsed)


def test_the_stock_commands_know_the_project(data_root, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command("available-tasks", "-l", "cmn", "--task-types", "STS")
    assert "MedTEBSTS, t2t" in capsys.readouterr().out
    command("available-benchmarks", "-b", "MedTEB(cmn, v1)")
    listed = capsys.readouterr().out
    assert all(name in listed for name in [*OURS, "CMedQAv1-reranking", "CMedQAv2-reranking"])
    command("run", "-t", "MedTEBSTS", "-m", "bm25-char-bigram", "--output-folder", "out")
    written = json.loads(next((tmp_path / "out").rglob("MedTEBSTS.json")).read_text())
    assert written["dataset_revision"] == find_edition("MedTEBSTS").digest
    command("create-model-results", "--model-name", "mar-mini", "--results-folder", "out")
    assert (tmp_path / "model_card.md").is_file()


@pytest.mark.slow
def test_a_new_process_need_not_import_medteb_mteb(data_root, tmp_path):
    arguments = ["run", "-t", "MedTEBRetrieval", "-m", "bm25-char-bigram", "--output-folder", "out"]
    environment = {**os.environ, "MEDTEB_DATA": str(data_root), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "mteb", *arguments],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "has been renamed" not in done.stderr
    (path,) = (tmp_path / "out").rglob("MedTEBRetrieval.json")
    assert path.parent.parent.name == "medteb__bm25-char-bigram"
    result = json.loads(path.read_text())
    assert result["dataset_revision"] == find_edition("MedTEBRetrieval").digest
