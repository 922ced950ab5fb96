"""Tasks over data built from raw files of public repositories."""

from __future__ import annotations

import mteb
import pytest
from mteb.tasks import BiossesSTS

from medteb_mteb.curation.relatives import SETS
from medteb_mteb.editions import write_manifest
from medteb_mteb.folders import FolderError
from medteb_mteb.tasks import DataUnavailableError
from medteb_mteb.tasks.relatives import BMRETRIEVER_SETS, RELATIVES, BIOSSESLocal

NAMES = [task.metadata.name for task in RELATIVES]


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("MEDTEB_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def test_every_task_can_be_built_by_its_name():
    assert {*NAMES, "BIOSSES"} == set(SETS)


def test_the_eleven_sets_of_bmretriever_are_tasks():
    assert len(set(BMRETRIEVER_SETS)) == 11
    assert [mteb.get_task(name).metadata.name for name in BMRETRIEVER_SETS] == [*BMRETRIEVER_SETS]
    assert set(NAMES) - set(BMRETRIEVER_SETS) == {"MedQuADLiveQARetrieval"}


@pytest.mark.parametrize("task", RELATIVES, ids=NAMES)
def test_a_task_without_data_says_how_to_build_them(task, root, monkeypatch):
    name = task.metadata.name
    with pytest.raises(DataUnavailableError) as caught:
        mteb.get_task(name).load_data()
    message = str(caught.value)
    assert f"the data of {name} were not built. Get {task.sources}" in message
    assert message.endswith(f"run `medteb build relatives {name} FOLDER {root}`.")
    monkeypatch.delenv("MEDTEB_DATA")
    with pytest.raises(DataUnavailableError, match=f"relatives {name} FOLDER DATA`, then set MEDTEB_DATA"):
        mteb.get_task(name).load_data()


def test_built_data_are_read_and_counted_by_their_manifest(root, retrieval_folder):
    name = "DiseaseOntologyRetrieval"
    published = mteb.get_task(name).size
    retrieval_folder(root / name)
    assert mteb.get_task(name).size == published
    counts = {"queries": 3, "corpus": 6, "qrels": 3}
    edition = write_manifest(
        root / name, task=name, name="raw", version="1", licence="cc0-1.0", counts=counts
    )
    task = mteb.get_task(name)
    assert (task.size, task.needs, task.metadata.revision) == ((3, 6), "nothing", edition.digest)
    task.load_data()
    assert len(task.dataset["default"]["test"]["corpus"]) == 6


def test_data_that_change_after_the_task_was_made_are_refused(root, retrieval_folder):
    folder = root / "ICliniqRetrieval"
    retrieval_folder(folder)
    task = mteb.get_task("ICliniqRetrieval")
    (folder / "qrels" / "test.tsv").write_text(
        "query-id\tcorpus-id\tscore\nq0\td1\t1\nq1\td1\t1\nq2\td2\t1\n"
    )
    with pytest.raises(FolderError, match="changed after the task was created"):
        task.load_data()


def test_biosses_comes_from_the_hub_unless_a_copy_is_there(root, make_folder, monkeypatch):
    def offline(*args, **kwargs):
        raise ConnectionError("Couldn't reach the Hub")

    monkeypatch.setattr(BiossesSTS, "load_data", offline)
    task = mteb.get_task("BIOSSES")
    assert type(task) is BIOSSESLocal
    assert task.metadata is BiossesSTS.metadata
    with pytest.raises(
        DataUnavailableError, match=f"Couldn't reach the Hub.*put the copy at {root}/BIOSSES/"
    ):
        task.load_data()
    make_folder("STS", "data/BIOSSES")
    copy = mteb.get_task("BIOSSES")
    copy.load_data()
    assert len(copy.dataset["test"]) == 6
    assert copy.metadata.revision != BiossesSTS.metadata.revision
