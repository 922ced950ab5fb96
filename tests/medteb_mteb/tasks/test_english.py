"""English MedTEB: what the tasks of the table say about themselves, and what they make of rows."""

from __future__ import annotations

import mteb
import pytest
from tests.medteb_mteb.english.snapshots import rows_of, write_csv

from medteb_mteb.english.snapshot import COLUMNS
from medteb_mteb.english.table import MAIN_METRICS, TYPES, english_tasks
from medteb_mteb.folders import FolderError
from medteb_mteb.tasks import DataUnavailableError
from medteb_mteb.tasks.english import ENGLISH_TASKS

CLS = "classification_wiki_pain_vs_fever_dataset"
CLU = "clustering_wiki_broad_medical_topics_dataset"
PAIR = "pairclassification_medqa_pair_classification"
RET = "retrieval_biorxiv_dataset"
MIMIC = "retrieval_mimic_Chief_Complaint_vs_Discharge_Diagnosis"


def test_each_task_of_the_paper_is_a_class_of_its_type_and_score():
    table = list(english_tasks().values())
    assert [task.metadata.name for task in ENGLISH_TASKS] == [task.name for task in table]
    assert len({task.__name__ for task in ENGLISH_TASKS}) == len(table) == 51
    for made, task in zip(ENGLISH_TASKS, table, strict=True):
        assert made.metadata.type == TYPES[task.type]
        assert made.metadata.main_score == MAIN_METRICS[task.type]


@pytest.mark.parametrize(
    ("name", "command", "more"),
    [
        (RET, f"build relatives {RET} FOLDER $MEDTEB_DATA --llm FILE`.", "fetch biorxiv FOLDER --contact"),
        (CLS, f"build relatives {CLS} FOLDER $MEDTEB_DATA`.", "fetch wikipedia FOLDER --contact"),
        (MIMIC, f"build relatives {MIMIC} FOLDER $MEDTEB_DATA`.", "needs credentials: `medteb build rel"),
    ],
)
def test_missing_data_name_the_commands_that_make_them(monkeypatch, name, command, more):
    monkeypatch.delenv("MEDTEB_DATA", raising=False)
    with pytest.raises(DataUnavailableError) as caught:
        mteb.get_task(name).load_data()
    assert str(caught.value).endswith(command)
    assert more in str(caught.value)


def test_a_snapshot_without_the_file_of_a_task_is_no_copy_of_it(snapshot):
    snapshot(CLS)
    there, absent = mteb.get_task(CLS), mteb.get_task(RET)
    assert (there.needs, absent.needs) == ("nothing", english_tasks()[RET].needs)
    assert len(there.metadata.revision) == 64
    assert absent.metadata is type(absent).metadata
    assert (there.size, absent.size) == (None, None)


def test_the_manifest_gives_size_and_differences(snapshot):
    entries = {RET: {"rows": 40, "differs": " titles in the\nplace of \x1b[31mquestions "}, CLS: {"rows": 40}}
    snapshot(RET, CLS, entries=entries)
    retrieval, classification = mteb.get_task(RET), mteb.get_task(CLS)
    assert (retrieval.size, classification.size) == ((40, 40), None)  # only retrieval has documents
    assert retrieval.differs == "titles in the place of \\x1b[31mquestions"
    assert classification.differs == ""


@pytest.mark.parametrize(
    "content",
    ["{", '{"options": {}, "tasks": {"NAME": 3}}', '{"options": {}, "tasks": {"NAME": {"rows": true}}}'],
)
def test_a_malformed_manifest_gives_neither(snapshot, content):
    folder = snapshot(RET)
    (folder / "snapshot.json").write_text(content.replace("NAME", RET), encoding="utf-8")
    task = mteb.get_task(RET)
    assert (task.size, task.differs) == (None, "")


@pytest.mark.parametrize(("name", "kind"), [(CLU, "CLU"), (PAIR, "PAIR"), (RET, "RET")])
def test_tasks_hold_the_rows_of_their_file_in_its_order(snapshot, name, kind):
    snapshot(name)
    task = mteb.get_task(name)
    task.load_data()
    if kind == "RET":
        data = task.dataset["default"]["test"]
        held = list(zip(data["queries"]["text"], data["corpus"]["text"], strict=True))
    elif kind == "PAIR":
        rows = task.dataset["test"]
        held = list(zip(rows["sentence1"], rows["sentence2"], rows["labels"], strict=True))
    else:
        (row,) = task.dataset["test"]
        held = list(zip(row["sentences"], row["labels"], strict=True))
    assert held == rows_of(kind)


def test_a_loaded_task_keeps_its_data_until_they_are_unloaded(snapshot):
    folder = snapshot(RET)
    task = mteb.get_task(RET)
    task.load_data()
    write_csv(folder / f"{RET}.csv", COLUMNS["RET"], rows_of("RET", 10))
    task.load_data()
    assert len(task.dataset["default"]["test"]["queries"]) == 40
    task.unload_data()
    with pytest.raises(FolderError, match="changed after the task was created; create it again"):
        task.load_data()


def test_metadata_state_the_origin_of_labels_and_the_dates_that_are_known():
    metadata = {task.metadata.name: task.metadata for task in ENGLISH_TASKS}
    assert {name: metadata[name].annotations_creators for name in (CLS, MIMIC, RET)} == {
        CLS: "derived",
        MIMIC: "derived",
        RET: "LM-generated",
    }
    assert metadata["retrieval_medquad_dataset"].annotations_creators == "derived"
    assert {name for name, one in metadata.items() if one.is_filled()} == {RET, "retrieval_medrxiv_dataset"}
    assert metadata[RET].date == ("2018-01-01", "2022-12-20")
