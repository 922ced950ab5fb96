"""The tables of tasks and benchmarks, and the packaged tasks over editions."""

from __future__ import annotations

import re

import mteb
import pytest
from tests.conftest import write_jsonl
from tests.medteb_mteb.tasks.nano_sets import write_set

from medteb_mteb.abstasks import DataUnavailableError
from medteb_mteb.editions import find_edition
from medteb_mteb.folders.layout import FolderError
from medteb_mteb.tasks import BENCHMARKS, REPLACED, TASKS, tasks_from_folders
from medteb_mteb.tasks.tables import cite, table

OURS = ("MedTEBRetrieval", "MedTEBReranking", "MedTEBSTS")
SIZES = {
    "MedTEB(cmn, v1)": 5,
    "MedTEB(cmn, mini)": 3,
    "Medical(cmn, public)": 15,
    "CMIRB": 10,
    "NanoCMTEB": 8,
    "NanoCMTEB(reranking)": 8,
    "NanoMedical": 10,
    "NanoMedical(reranking)": 10,
    "BMRetriever(eng, v1)": 11,
    "MedTEB(eng, v1)": 51,
}


def test_benchmarks_have_their_tasks():
    assert {one.name: len(mteb.get_benchmark(one.name).tasks) for one in BENCHMARKS.values()} == SIZES
    assert len(TASKS) == 3 + 18 * 5 + 10 + 7 + 51
    assert len(REPLACED) == 10


@pytest.mark.parametrize("task", [*TASKS, *REPLACED.values()], ids=lambda task: task.metadata.name)
def test_metadata_are_valid_and_citations_sorted(task):
    metadata = task.metadata
    assert mteb.get_task(metadata.name).metadata.name == metadata.name
    if task in REPLACED.values():
        return  # mteb's own
    assert metadata.description
    assert metadata.license
    assert (
        metadata.prompt
        or metadata.type not in ("Retrieval", "Reranking")
        or "Nano" in metadata.name
        or (metadata.name.startswith("retrieval_"))
    )
    keys = re.findall(r"^@\w+\{([^,]+),$", metadata.bibtex_citation, re.MULTILINE)
    assert keys
    assert keys == sorted(keys, key=str.lower)


def test_citations_are_merged_once_each():
    both = cite("bmretriever", "bioasq", table("citations")["bioasq"], None)
    assert both.count("@") == 2
    assert both.index("tsatsaronis2015") < both.index("xu-etal-2024")


@pytest.mark.parametrize("name", ["ICliniqRetrieval", "retrieval_medquad_dataset"])
def test_a_task_without_data_says_how_to_build_them(name, tmp_path, monkeypatch):
    monkeypatch.setenv("MEDTEB_DATA", str(tmp_path))
    with pytest.raises(DataUnavailableError, match=rf"tools.relatives build {name} RAW {tmp_path}"):
        mteb.get_task(name).load_data()


def test_the_edition_is_resolved_when_the_task_is_made(data_root, monkeypatch):
    task = mteb.get_task("MedTEBRetrieval")
    assert task.metadata.revision == find_edition("MedTEBRetrieval").digest
    assert task.metadata.license == "cc-by-4.0"
    monkeypatch.delenv("MEDTEB_DATA")
    packaged = mteb.get_task("MedTEBRetrieval")
    assert packaged.metadata.license == "apache-2.0"
    assert packaged.metadata.annotations_creators == "algorithmic"
    assert packaged.metadata.revision == find_edition("MedTEBRetrieval").digest != task.metadata.revision


@pytest.mark.parametrize("name", OURS)
def test_a_tiny_edition_is_scored_and_an_altered_one_refused(name, data_root):
    model = mteb.get_model("bm25-char-bigram")
    result = mteb.evaluate(model, mteb.get_task(name), cache=None, show_progress_bar=False).task_results[0]
    assert result.dataset_revision == find_edition(name).digest
    assert -1 <= result.get_score() <= 1
    file = "test.jsonl" if name == "MedTEBSTS" else "corpus.jsonl"
    with (data_root / name / file).open("a") as stream:
        stream.write("\n")
    with pytest.raises(ValueError, match=file):
        mteb.get_task(name).load_data()


def test_an_edition_that_cannot_be_resolved_is_reported_on_use_only(data_root):
    (data_root / "MedTEBSTS" / "manifest.json").write_text("{")
    task = mteb.get_task("MedTEBSTS")
    assert len(task.metadata.revision) != 64
    with pytest.raises(ValueError, match=r"manifest.json"):
        task.load_data()


def test_published_prompts_are_those_of_the_paper():
    prompts = [mteb.get_task(name).metadata.prompt for name in OURS]
    assert prompts[0] == {
        "query": "Given a Chinese medical question, retrieve medical documents that answer the question."
    }
    assert prompts[2] == "Retrieve semantically similar text."
    assert [mteb.get_task(name).metadata.main_score for name in OURS] == [
        "ndcg_at_10", "map_at_1000", "cosine_pearson",
    ]  # fmt: skip


def test_cmirb_reads_a_copy_in_its_published_layout(tmp_path, monkeypatch):
    folder = tmp_path / "data" / "MedExamRetrieval"
    write_jsonl(folder / "corpus.jsonl", [{"id": f"d{i}", "text": f"第{i}段"} for i in range(3)])
    write_jsonl(folder / "queries.jsonl", [{"id": "q0", "text": "哪一段"}])
    write_jsonl(folder / "qrels" / "test.jsonl", [{"q_id": "q0", "p_id": "d1", "score": 1}])
    monkeypatch.setenv("MEDTEB_DATA", str(tmp_path / "data"))
    task = mteb.get_task("MedExamRetrieval")
    task.load_data()
    assert task.dataset["default"]["test"]["relevant_docs"] == {"q0": {"d1": 1}}


def test_folders_become_tasks_and_names_must_differ(make_folder, tmp_path):
    nano = write_set(tmp_path / "Nano", ["one"])
    tasks = tasks_from_folders([make_folder("STS"), nano])
    assert [task.metadata.name for task in tasks] == [
        "tiny-sts", "Nano-one-Retrieval", "Nano-one-Reranking", "Nano-one-RerankingNoSafeguard",
        "Nano-one-BM25Reranking", "Nano-one-harrier_oss_v1_270m-Reranking",
    ]  # fmt: skip
    with pytest.raises(FolderError, match="same task name"):
        tasks_from_folders([make_folder("STS", "a/x"), make_folder("STS", "b/x")])
