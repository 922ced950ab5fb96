"""The task file for mteb: as generated, valid by mteb's own checks, with statistics by its own machinery."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
import yaml
from mteb.abstasks.abstask import AbsTask

from medteb_mteb.tasks.cmirb import cmirb_sets
from tests.conftest import DOCUMENTS, QRELS, QUERIES, write_jsonl

FOLDER = Path(__file__).resolve().parents[2] / "contrib" / "mteb"


def module(name: str):
    spec = importlib.util.spec_from_file_location(f"contrib_{name}", FOLDER / f"{name}.py")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


@pytest.fixture(scope="module")
def tasks() -> dict[str, type[AbsTask]]:
    found = vars(module("cmirb_retrieval")).values()
    classes = [one for one in found if isinstance(one, type) and issubclass(one, AbsTask)]
    return {one.metadata.name: one for one in classes if "metadata" in vars(one)}


def test_the_file_is_the_generated_one():
    made = module("make_tasks")
    assert made.TARGET.read_text("utf-8") == made.content()


def test_mtebs_checks_of_metadata_pass(tasks):
    assert set(tasks) == {one.task for one in cmirb_sets() if not one.adapted_from}
    for task in tasks.values():
        metadata = type(task.metadata).model_validate(task.metadata.model_dump())
        assert metadata.is_filled()
        assert metadata.intext_citation()
        assert task().metadata.name == task.__name__


def test_mtebs_machinery_computes_the_statistics(tasks, tmp_path, monkeypatch, datasets_cache):
    """On made-up content in the published layout: those of the published data need the Hub."""
    folder = tmp_path / "published"
    write_jsonl(folder / "corpus.jsonl", [{"id": k, "text": t} for k, t in DOCUMENTS.items()])
    write_jsonl(folder / "queries.jsonl", [{"id": k, "text": t} for k, t in QUERIES.items()])
    rows = [{"q_id": q, "p_id": d, "score": s} for q, found in QRELS.items() for d, s in found.items()]
    write_jsonl(folder / "qrels" / "test.jsonl", rows)
    files = (("default", "test", "qrels/test.jsonl"), ("corpus", "corpus", "corpus.jsonl"))
    configs = [
        {"config_name": name, "data_files": [{"split": split, "path": path}]}
        for name, split, path in (*files, ("queries", "queries", "queries.jsonl"))
    ]
    (folder / "README.md").write_text(f"---\n{yaml.safe_dump({'configs': configs})}---\n", encoding="utf-8")
    task = tasks["MedExamRetrieval"]()
    monkeypatch.setattr(task.metadata, "dataset", {"path": str(folder), "revision": "main"})
    target = tmp_path / "statistics.json"
    monkeypatch.setattr(type(task.metadata), "descriptive_stat_path", target)
    task.calculate_descriptive_statistics()
    found = json.loads(target.read_text("utf-8"))["test"]
    assert (found["num_queries"], found["num_documents"]) == (len(QUERIES), len(DOCUMENTS))
    assert found["relevant_docs_statistics"]["num_relevant_docs"] == sum(map(len, QRELS.values()))
