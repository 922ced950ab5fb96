from __future__ import annotations

import json
from pathlib import Path

import mteb
import pytest
from mteb.abstasks.retrieval import AbsTaskRetrieval

from medteb_mteb.editions import STATISTICS, find_edition, load_edition, verify, write_manifest
from medteb_mteb.folders import task_from_folder

OURS = ("MedTEBRetrieval", "MedTEBReranking", "MedTEBSTS")
INSTALLED = Path(mteb.__file__).parent / "descriptive_stats"


def of_ours() -> set[str]:
    return {path.name for path in INSTALLED.rglob("*.json") if path.stem in {*OURS, "clinic"}}


@pytest.fixture(autouse=True)
def mteb_untouched():
    before = of_ours()
    yield
    assert of_ours() == before


@pytest.mark.parametrize("name", OURS)
def test_metadata_are_filled_as_mteb_asks_of_its_own_tasks(name, monkeypatch):
    """The same checks as `test_all_metadata_is_filled_and_valid` of mteb's own tests."""
    monkeypatch.delenv("MEDTEB_DATA", raising=False)
    task = mteb.get_task(name)
    task.metadata._validate_metadata()
    assert task.metadata.is_filled()
    assert task.metadata.dataset.get("trust_remote_code", False) is False
    assert isinstance(task.metadata.simplified_task_type, str)
    assert task.metadata.descriptive_stats is not None
    assert task.metadata.n_samples is not None
    assert isinstance(task.metadata.prompt, str) or isinstance(task, AbsTaskRetrieval)


def test_packaged_statistics_are_those_of_the_packaged_data(monkeypatch):
    monkeypatch.delenv("MEDTEB_DATA", raising=False)
    for name, expected in zip(OURS, (5_300, None, 1_000), strict=True):
        task = mteb.get_task(name)
        assert task.metadata.descriptive_stat_path.parent == find_edition(name).path / STATISTICS
        if expected:
            assert task.metadata.n_samples == {"test": expected}
        verify(find_edition(name))  # statistics are not a data file


def test_another_edition_shows_its_own_statistics_or_none(data_root, medteb):
    task = mteb.get_task("MedTEBRetrieval")
    assert task.metadata.descriptive_stats is None
    code, out, _ = medteb("edition", "stats", "MedTEBRetrieval", "--json")
    assert code == 0
    printed = json.loads(out)["MedTEBRetrieval"]["test"]
    assert (printed["num_queries"], printed["num_documents"]) == (3, 6)
    assert task.metadata.descriptive_stats["test"] == printed
    assert mteb.get_task("MedTEBRetrieval").metadata.n_samples == {"test": 9}
    verify(load_edition(data_root / "MedTEBRetrieval"))
    folder = data_root / "MedTEBRetrieval"
    (folder / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\nq0\td0\t1\nq1\td1\t1\n")
    write_manifest(folder, task="MedTEBRetrieval", name="mini", version="2", licence="mit", counts={})
    assert mteb.get_task("MedTEBRetrieval").metadata.descriptive_stats is None  # of the former data


def test_statistics_are_computed_by_mteb_and_only_once(data_root, monkeypatch):
    task = mteb.get_task("MedTEBSTS")
    computed = task.calculate_descriptive_statistics()
    assert computed["test"]["num_samples"] == 5
    assert task.metadata.revision == find_edition("MedTEBSTS").digest
    monkeypatch.setattr(type(task), "load_data", lambda self, **kwargs: pytest.fail("computed again"))
    assert mteb.get_task("MedTEBSTS").calculate_descriptive_statistics() == computed


def test_folders_keep_their_statistics_and_their_names(retrieval_folder, tmp_path, medteb):
    retrieval_folder(tmp_path / "clinic")
    code, out, _ = medteb("edition", "stats", tmp_path / "clinic")
    assert code == 0
    assert "clinic  test 9 samples" in out
    task = task_from_folder(tmp_path / "clinic")
    assert task.metadata.n_samples == {"test": 9}
    assert task.metadata.descriptive_stat_path.parent.parent == tmp_path / "clinic"


def test_a_local_copy_does_not_show_the_statistics_of_the_hub(retrieval_folder, tmp_path, monkeypatch):
    assert mteb.get_task("CMedQAv1-reranking").metadata.descriptive_stats is not None
    retrieval_folder(tmp_path / "CMedQAv1-reranking", candidates=["d0", "d1", "d2"])
    monkeypatch.setenv("MEDTEB_DATA", str(tmp_path))
    task = mteb.get_task("CMedQAv1-reranking")
    assert task.metadata.descriptive_stats is None
    assert task.calculate_descriptive_statistics()["test"]["num_queries"] == 3
    assert task.metadata.descriptive_stat_path.is_relative_to(tmp_path)


def test_a_folder_that_cannot_be_written_to_is_named(data_root, medteb):
    (data_root / "MedTEBSTS" / STATISTICS).write_text("in the way")
    code, out, err = medteb("edition", "stats", "MedTEBSTS")
    assert (code, out) == (2, "")
    assert "cannot be written" in err.splitlines()[-1]
    assert "copy the folder" in err
