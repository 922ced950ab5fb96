"""Tasks out of a user's own copy of MIMIC-IV; every row is made up."""

from __future__ import annotations

import csv
import json
import socket
import stat

import pytest
from tests.medteb_mteb.curation.relatives.raw_samples import note_of, write_admissions, write_notes

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.relatives import SNAPSHOT_TASKS, build_snapshot_task, mimic
from medteb_mteb.curation.relatives import rows as rows_module
from medteb_mteb.curation.relatives.notes import read_returns
from medteb_mteb.curation.relatives.raw import Raw
from medteb_mteb.curation.relatives.rows import Draw
from medteb_mteb.english.table import english_tasks

ABDOMEN = "classification_mimiciv_specific_Abdominal_Conditions"
THREE, THIRTY = (f"classification_mimiciv_readmission_{days}_days" for days in (3, 30))
TO_DIAGNOSIS = "retrieval_mimic_Chief_Complaint_vs_Discharge_Diagnosis"
TO_COMPLAINT = "pairclassification_mimic_History_of_Present_Illness_vs_Chief_Complaint"


def note(diagnosis, number=0, **changes):
    """A note with all sections that the tasks use."""
    sections = {
        "Chief_Complaint": f"complaint {number}",
        "History_of_Present_Illness": f"Felt  ill\non day {number}.",
        "Past_Medical_History": "none",
        "Discharge_Diagnosis": diagnosis,
        "Discharge_Instructions": f"Dear Ms. ___, rest for {number} days.",
        "Followup_Instructions": "___",
    }
    return note_of(**{name: text for name, text in (sections | changes).items() if text is not None})


@pytest.fixture(autouse=True)
def _no_network(monkeypatch):
    """Whatever opens a connection fails the test."""

    def refuse(*_args):
        raise AssertionError("a note must not leave the machine")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def build(raw, name, out, **options):
    path, entry, _ = build_snapshot_task(name, raw, out, options)
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream)), entry


def test_the_whole_diagnosis_in_any_case_gives_the_label(tmp_path):
    diagnoses = [
        "Pancreatitis",
        "PANCREATITIS",
        "Acute pancreatitis",
        "chest  pain",
        "Small bowel obstruction",
    ]
    notes = [note(diagnosis, number) for number, diagnosis in enumerate(diagnoses)]
    notes += [
        note("Pancreatitis", 5, Chief_Complaint=None),
        note("Abdominal pain", 6, Discharge_Diagnosis=None),
    ]
    notes += [note("Abdominal pain\nChronic pain", 7)]
    rows, entry = build(write_notes(tmp_path / "raw", notes), ABDOMEN, tmp_path / "data")

    def text(number):
        return f"Chief Complaint: complaint {number} History of Present Illness: Felt ill on day {number}."

    assert rows == [
        {"text": text(4), "label": "Obstructions"},
        {"text": text(0), "label": "Inflammatory"},
        {"text": text(1), "label": "Inflammatory"},
        {"text": text(3), "label": "Pain"},
    ]
    assert list(entry["made_from"]) == ["note/discharge.csv.gz"]
    assert entry["licence"].startswith("PhysioNet Credentialed")


def test_a_label_without_a_note_is_one_clear_error(tmp_path):
    raw = write_notes(tmp_path / "raw", [note("Pancreatitis")])
    with pytest.raises(BuildError, match="nothing was found for Obstructions, Pain; this copy has no note"):
        build(raw, ABDOMEN, tmp_path / "data")


def stay(patient, number, start, end, death=""):
    days = [f"2180-{day} 12:00:00" if day else "" for day in (start, end, death)]
    return (10_000 + patient, 20_000 + number, *days)


def test_readmission_counts_days_to_the_next_stay_and_not_the_dead(tmp_path):
    stays = [
        stay(0, 0, "01-01", "01-05"), stay(0, 100, "01-08", "01-09"),  # after three days
        stay(1, 1, "01-01", "01-05"), stay(1, 101, "01-09", "01-10"),  # after four
        stay(2, 2, "01-01", "01-05"), stay(2, 102, "02-05", "02-06"),  # after 31
        stay(3, 3, "01-01", "01-05", "01-05"),  # died
        stay(4, 4, "01-01", "01-05"),
        stay(5, 105, "01-01", "01-02"), stay(5, 5, "01-03", "01-04"),  # the second stay is the last one
    ]  # fmt: skip
    raw = write_notes(tmp_path / "raw", [note("Pneumonia", number) for number in range(7)])  # 6 has no stay
    write_admissions(raw, stays)
    rows_within = {days: mimic.return_rows(Raw(raw), "x", days) for days in (3, 4, 30, 31)}

    def numbers(days, label):
        return {int(row["text"].split()[3]) for row in rows_within[days] if row["label"] == label}

    assert numbers(3, "readmitted") == {0}
    assert numbers(4, "readmitted") == numbers(30, "readmitted") == {0, 1}
    assert len(numbers(31, "readmitted")) == 2  # of three, since two others are left
    assert read_returns(Raw(raw), 31)["20002"]
    assert not read_returns(Raw(raw), 30)["20002"]
    for days in rows_within:
        assert len(numbers(days, "not readmitted")) == len(numbers(days, "readmitted"))
        assert numbers(days, "not readmitted") <= {1, 2, 4, 5}
    rows, entry = build(raw, THIRTY, tmp_path / "data")
    assert rows == rows_within[30]
    assert sorted(entry["made_from"]) == ["hosp/admissions.csv.gz", "note/discharge.csv.gz"]


def test_readmission_needs_both_kinds(tmp_path):
    raw = write_notes(tmp_path / "raw", [note("Pneumonia")])
    with pytest.raises(BuildError, match=r"has no admissions\.csv\*: admissions of MIMIC-IV"):
        build(raw, THREE, tmp_path / "data")
    write_admissions(raw, [stay(0, 0, "01-01", "01-05")])
    with pytest.raises(BuildError, match="0 are of patients who returned and 1 of others"):
        build(raw, THREE, tmp_path / "data")
    write_admissions(raw, [(10_000, 20_000, "first of May", "later", "")])
    with pytest.raises(BuildError, match="row 1: expected admittime and dischtime as YYYY") as error:
        build(raw, THREE, tmp_path / "data")
    assert "May" not in str(error.value)


def test_two_sections_of_a_note_are_query_and_document(tmp_path):
    notes = [note("Pneumonia", 0), note("Pneumonia", 0), note("Sepsis", 1), note("", 2), "no sections"]
    # The second note repeats the first one's pair; the addendum to the third is not a summary.
    raw = write_notes(tmp_path / "raw", [*notes, note("Asthma", 9)], kinds="DDDDDA")
    rows, _ = build(raw, TO_DIAGNOSIS, tmp_path / "data")
    assert rows == [
        {"query": "complaint 0", "corpus": "Pneumonia"},
        {"query": "complaint 1", "corpus": "Sepsis"},
    ]


def test_negatives_are_of_another_diagnosis(tmp_path):
    notes = [
        note("Asthma" if number % 2 else "ASTHMA", number, Chief_Complaint=f"cough at night {number}")
        for number in range(6)
    ]
    notes += [note("Gout", number, Chief_Complaint=f"cough and toe {number}") for number in range(6, 8)]
    raw = write_notes(tmp_path / "raw", notes)
    rows, entry = build(raw, TO_COMPLAINT, tmp_path / "data", negatives="bm25")
    assert [row["label"] for row in rows] == ["1", "0"] * 8
    for right, wrong in zip(rows[::2], rows[1::2], strict=True):
        assert right["sentence1"] == wrong["sentence1"]
        assert ("toe" in right["sentence2"]) != ("toe" in wrong["sentence2"])
    assert entry["options"] == {"negatives": "bm25"}


def test_a_draw_keeps_the_order_and_includes_smaller_draws():
    texts = [f"text {number}" for number in range(200)]
    draws = {}
    for most in (10, 50, 500):
        draw = Draw(most)
        for text in [*texts, *texts[:20]]:
            draw.add(text, text)
        draws[most] = draw.items()
    assert [len(drawn) for drawn in draws.values()] == [10, 50, 200]
    assert set(draws[10]) < set(draws[50])
    assert draws[500] == texts
    assert draws[50] == [text for text in texts if text in set(draws[50])]
    assert draws[10] != texts[:10]
    assert draw.items(10) == draws[10]


def test_rows_beyond_the_published_number_are_dropped_at_random(tmp_path, monkeypatch):
    monkeypatch.setattr(mimic, "MAX_ROWS", 4)
    raw = write_notes(tmp_path / "raw", [note(f"Disease {number}", number) for number in range(9)])
    rows, _ = build(raw, TO_DIAGNOSIS, tmp_path / "a")
    again, _ = build(raw, TO_DIAGNOSIS, tmp_path / "b")
    assert len(rows) == 4
    assert rows == again
    assert rows == sorted(rows, key=lambda row: int(row["query"].split()[1]))


def test_only_the_user_can_read_the_file(tmp_path):
    raw = write_notes(tmp_path / "raw", [note("Pneumonia", 0), note("Sepsis", 1)])
    path, _, _ = build_snapshot_task(TO_DIAGNOSIS, raw, tmp_path / "data")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "complaint" not in (path.parent / "snapshot.json").read_text()


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"note_id,text\n1,secret\n", r"no column hadm_id, note_type; got note_id, text"),
        (b"hadm_id,note_type,text\n1,DS,secret\n2,DS\n", r"discharge\.csv:3: 2 cells; the header has 3"),
        (b"hadm_id,note_type,text\n1,DS,\xffsecret\n", r"discharge\.csv:2 is not valid UTF-8 at byte 6"),
        (b"", "no column hadm_id"),
    ],
)
def test_a_malformed_copy_is_one_clear_error_without_its_texts(tmp_path, content, match):
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "discharge.csv").write_bytes(content)
    with pytest.raises(BuildError, match=match) as error:
        build(tmp_path / "raw", TO_DIAGNOSIS, tmp_path / "data")
    assert "secret" not in str(error.value)
    assert not (tmp_path / "data" / "MedTEB-eng").exists()


def test_no_note_is_sent_to_an_llm(tmp_path, medteb):
    raw = write_notes(tmp_path / "raw", [note("Pneumonia", 0), note("Sepsis", 1)])
    file = tmp_path / "llm.yaml"
    file.write_text("llm: {name: w, model: w, base_url: 'http://127.0.0.1:9/v1'}\n", encoding="utf-8")
    code, _, err = medteb("build", "relatives", TO_DIAGNOSIS, raw, tmp_path / "data", "--llm", file)
    assert code == 2
    assert f"No LLM writes texts of {TO_DIAGNOSIS}" in err


def test_all_26_tasks_are_built_from_one_folder(tmp_path):
    every = sorted({name for groups in mimic.DIAGNOSES.values() for some in groups.values() for name in some})
    notes = [note(diagnosis, number) for number, diagnosis in enumerate([*every, *every])]
    raw = write_notes(tmp_path / "raw", notes)
    stays = [stay(number, number, "01-01", "01-05") for number in range(len(notes))]
    write_admissions(raw, [*stays, *(stay(n, 500 + n, "01-06", "01-07") for n in range(0, len(notes), 3))])
    names = [name for name, task in english_tasks().items() if task.needs == "credentials"]
    assert len(names) == 26
    for name in names:
        options = {"negatives": "bm25"} if name.startswith("pair") else {}
        rows, entry = build(raw, name, tmp_path / "data", **options)
        assert len(rows) == entry["rows"] > 4, name
    manifest = json.loads((tmp_path / "data" / "MedTEB-eng" / "snapshot.json").read_text())
    assert sorted(manifest["tasks"]) == sorted(names)


def test_every_task_of_the_paper_has_a_builder():
    assert set(SNAPSHOT_TASKS) == set(english_tasks())
    assert rows_module.MAX_LABELLED_ROWS == 8_192


def test_the_shared_groups_are_those_of_the_tasks():
    ends = {name.partition("_mimiciv_")[2] for name in english_tasks() if "_mimiciv_" in name}
    assert ends == set(mimic.DIAGNOSES) | set(mimic.READMISSIONS)
    ends = {name.partition("_mimic_")[2] for name in english_tasks() if "_mimic_" in name}
    assert ends == set(mimic.FIELD_PAIRS)
