"""What a task needs, and its size, without its data."""

from __future__ import annotations

import json

import mteb
import pytest
from tests.medteb_mteb.nano.sets import write_split

from medteb_mteb.editions import write_manifest
from medteb_mteb.tasks.benchmarks import BENCHMARKS
from medteb_mteb.tasks.needs import needs_of, size_of


def test_the_size_of_a_snapshot_is_that_of_its_rows(medteb, tmp_path, monkeypatch):
    name = "retrieval_biorxiv_dataset"
    folder = tmp_path / "MedTEB-eng"
    folder.mkdir()
    (folder / f"{name}.csv").write_text("query,corpus\na,b\nc,d\n", encoding="utf-8")
    monkeypatch.setenv("MEDTEB_DATA", str(tmp_path))
    assert size_of(mteb.get_task(name)) is None  # a file of one's own has no manifest
    content = {"options": {}, "tasks": {name: {"rows": 2}}}
    (folder / "snapshot.json").write_text(json.dumps(content), encoding="utf-8")
    task = next(task for task in BENCHMARKS["MEDTEB_ENG_V1"].tasks if task.metadata.name == name)
    assert size_of(task) == (2, 2)
    assert needs_of(task) == "nothing"


def test_a_task_may_say_what_it_needs(monkeypatch):
    task = mteb.get_task("NFCorpus")
    assert needs_of(task) == "network"
    assert size_of(task) == (323, 3633)
    task.needs = "credentials"
    assert needs_of(task) == "credentials"
    task.needs = "luck"
    with pytest.raises(ValueError, match="NFCorpus needs 'luck'; expected one of nothing, network"):
        needs_of(task)


def test_an_edition_has_the_size_of_its_manifest(data_root):
    folder = data_root / "MedTEBRetrieval"
    assert size_of(mteb.get_task("MedTEBRetrieval")) is None  # that of the fixture counts nothing
    counts = {"queries": 3, "corpus": 6}
    write_manifest(folder, task="MedTEBRetrieval", name="mini", version="2", licence="mit", counts=counts)
    task = mteb.get_task("MedTEBRetrieval")
    assert (needs_of(task), size_of(task)) == ("nothing", (3, 6))


def test_an_edition_that_cannot_be_read_has_no_size(data_root):
    (data_root / "MedTEBRetrieval" / "manifest.json").write_text("{")
    task = mteb.get_task("MedTEBRetrieval")
    assert (needs_of(task), size_of(task)) == ("network", None)


@pytest.mark.parametrize(
    "name", ["NanoCMTEBMedicalRetrieval", "MedExamRetrieval", "DiseaseOntologyRetrieval"]
)
def test_published_sizes_are_known_without_the_data(name, monkeypatch):
    monkeypatch.delenv("MEDTEB_DATA", raising=False)
    task = mteb.get_task(name)
    queries, documents = size_of(task)
    assert 0 < queries <= documents
    assert needs_of(task) == "network"


def test_a_local_copy_needs_nothing_and_keeps_the_published_size(tmp_path, monkeypatch):
    write_split(tmp_path / "NanoCMTEB", "medical")
    monkeypatch.setenv("MEDTEB_DATA", str(tmp_path))
    task = mteb.get_task("NanoCMTEBMedicalRetrieval")
    assert (needs_of(task), size_of(task)) == ("nothing", (200, 10_000))
