"""Sections of discharge notes, and returns to the hospital, out of made-up rows in the form of MIMIC-IV."""

from __future__ import annotations

import pytest
from tests.medteb_mteb.curation.relatives.raw_samples import NOTE, note_of, write_admissions, write_notes

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.relatives.notes import (
    COMPLAINT,
    DIAGNOSIS,
    HISTORY,
    Note,
    note_fields,
    read_notes,
    read_returns,
)
from medteb_mteb.curation.relatives.raw import Raw


def test_sections_end_at_the_next_heading_and_are_one_line():
    assert note_fields(NOTE) == {
        "Chief Complaint": "chest pain",
        "History of Present Illness": "He felt pain on stairs.",
        "Past Medical History": "none",
        "Discharge Diagnosis": "Angina",
        "Discharge Instructions": "Rest. History of Present Illness: not a heading here",
    }
    assert note_fields("no headings at all") == {}


def test_headings_may_have_any_case_and_the_first_of_a_kind_counts():
    note = (
        "CHIEF COMPLAINT: cough\n  history of present illness :\nsick\nChief complaint: fever\nFacility: ___"
    )
    assert note_fields(note) == {COMPLAINT: "cough", HISTORY: "sick", "Facility": "___"}


def test_complaint_and_history_are_joined_only_if_both_are_there():
    whole = Note("1", {COMPLAINT: "cough", HISTORY: "sick", DIAGNOSIS: "Pneumonia, LEFT"})
    assert whole.presented == "Chief Complaint: cough History of Present Illness: sick"
    assert whole.diagnosis == "pneumonia, left"
    assert Note("1", {COMPLAINT: "cough"}).presented == ""
    assert Note("1", {COMPLAINT: "", HISTORY: "sick"}).presented == ""
    assert Note("1", {}).diagnosis == ""


def test_the_first_summary_of_each_admission_is_read_in_file_order(tmp_path):
    raw = write_notes(tmp_path, [note_of(Chief_Complaint=f"c{number}") for number in range(4)], "DADD")
    assert [(note.admission, note.fields[COMPLAINT]) for note in read_notes(Raw(raw))] == [
        ("20000", "c0"),
        ("20001", "c2"),
        ("20002", "c3"),
    ]
    table = "hadm_id,note_type,text\n7,AD,Facility: a\n7,DS,Facility: b\n,DS,Facility: c\n7,DS,Facility: d\n"
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "discharge.csv").write_text(table, encoding="utf-8")
    assert list(read_notes(Raw(tmp_path / "b"))) == [Note("7", {"Facility": "b"})]


def test_a_copy_without_notes_is_one_clear_error(tmp_path):
    with pytest.raises(BuildError, match=r"has no discharge\.csv\*: discharge notes of MIMIC-IV-Note"):
        list(read_notes(Raw(tmp_path)))


def returns(folder, stays, days):
    return read_returns(Raw(write_admissions(folder, stays)), days)


def test_a_return_counts_to_the_second_whatever_the_order_of_the_rows(tmp_path):
    stays = [
        (1, 12, "2180-01-09 08:00:01", "2180-01-10 00:00:00", ""),
        (1, 11, "2180-01-04 08:00:00", "2180-01-06 08:00:00", ""),
        (1, 10, "2180-01-01 00:00:00", "2180-01-01 08:00:00", ""),
        (2, 20, "2180-01-09 00:00:00", "2180-01-10 00:00:00", ""),  # another patient
    ]
    expected = {"10": True, "11": False, "12": False, "20": False}
    assert returns(tmp_path / "a", stays, 3) == expected
    assert returns(tmp_path / "b", stays[::-1], 3) == expected
    assert returns(tmp_path / "c", stays, 4) == {**expected, "11": True}


def test_a_stay_that_begins_before_the_end_of_the_last_is_no_return_and_the_dead_do_not_return(tmp_path):
    stays = [
        (1, 10, "2180-01-01 00:00:00", "2180-01-05 00:00:00", ""),
        (1, 11, "2180-01-04 00:00:00", "2180-01-05 12:00:00", ""),
        (1, 12, "2180-01-06 00:00:00", "2180-01-07 00:00:00", "2180-01-07 00:00:00"),
        (2, 20, "2180-01-01 00:00:00", "2180-01-02 00:00:00", ""),
        (2, 21, "2180-01-02 00:00:00", "2180-01-03 00:00:00", ""),  # at the very end of the stay before
    ]
    assert returns(tmp_path, stays, 30) == {"10": False, "11": True, "20": True, "21": False}


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ("01/05/2180", "row 2: expected admittime and dischtime as YYYY-MM-DD HH:MM:SS"),
        ("", "row 2: expected admittime and dischtime as YYYY-MM-DD HH:MM:SS"),
        ("2180-05-01 00:00:00+01:00", "row 2: expected times without a zone"),
    ],
)
def test_a_malformed_time_is_named_by_its_row_and_not_quoted(tmp_path, start, message):
    good = (1, 10, "2180-01-01 00:00:00", "2180-01-05 00:00:00", "")
    with pytest.raises(BuildError, match=message) as error:
        returns(tmp_path, [good, (2, 20, start, "2180-05-02 00:00:00", "")], 3)
    assert not start or start not in str(error.value)
