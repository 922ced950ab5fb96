"""MIMIC-IV from a user's own credentialed copy. No error quotes a note, and nothing is sent anywhere."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from mar_st.data.rows import read_rows
from tools.relatives.raw import in_one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tools.relatives.raw import Raw

COMPLAINT, HISTORY, DIAGNOSIS = "Chief Complaint", "History of Present Illness", "Discharge Diagnosis"
#: Headings that end the previous section in MIMIC-IV's discharge notes.
_HEADINGS = (
    "Chief Complaint|Major Surgical or Invasive Procedure|History of Present Illness|Past Medical History|"
    "Social History|Family History|Physical Exam|Pertinent Results|Brief Hospital Course|"
    "Medications on Admission|Discharge Medications|Discharge Disposition|Facility|Discharge Diagnosis|"
    "Discharge Condition|Discharge Instructions|Followup Instructions"
)
_SECTION = re.compile(rf"^\s*({_HEADINGS})\s*:", re.IGNORECASE | re.MULTILINE)


class Note(NamedTuple):
    """The discharge summary of an admission: its sections by heading, each as a single line."""

    admission: str
    fields: dict[str, str]

    @property
    def presented(self) -> str:
        """Return complaint and history as the authors join them; empty if one is missing."""
        complaint, history = self.fields.get(COMPLAINT, ""), self.fields.get(HISTORY, "")
        return f"{COMPLAINT}: {complaint} {HISTORY}: {history}" if complaint and history else ""

    @property
    def diagnosis(self) -> str:
        """Return the discharge diagnosis in lower case; empty if there is none."""
        return self.fields.get(DIAGNOSIS, "").lower()


def note_fields(note: str) -> dict[str, str]:
    """Return the sections of a discharge note by heading; if a heading occurs twice, the first counts."""
    parts = _SECTION.split(note)
    fields: dict[str, str] = {}
    for heading, text in zip(parts[1::2], parts[2::2], strict=True):
        fields.setdefault(heading.title().replace(" Of ", " of ").replace(" Or ", " or "), in_one_line(text))
    return fields


def read_notes(raw: Raw) -> Iterator[Note]:
    """Yield the first discharge summary of every admission, in file order."""
    path = raw.one("discharge.csv*", "notes of MIMIC-IV-Note (note/discharge.csv.gz; PhysioNet, credentials)")
    seen: set[str] = set()
    for _, row in read_rows(path):
        admission = str(row["hadm_id"])
        if row["note_type"] == "DS" and admission and admission not in seen:  # others are addenda
            seen.add(admission)
            yield Note(admission, note_fields(str(row["text"])))


def read_returns(raw: Raw, days: int) -> dict[str, bool]:
    """Return whether the next admission began within `days`, by admission that the patient survived."""
    path = raw.one(
        "admissions.csv*", "admissions of MIMIC-IV (hosp/admissions.csv.gz; PhysioNet, credentials)"
    )
    stays: dict[str, list[tuple[datetime, datetime, str, bool]]] = {}
    for _, row in read_rows(path):
        start, end = (datetime.fromisoformat(row[name]) for name in ("admittime", "dischtime"))
        stay = (start, end, str(row["hadm_id"]), bool(row["deathtime"].strip()))
        stays.setdefault(str(row["subject_id"]), []).append(stay)
    returned: dict[str, bool] = {}
    for patient in stays.values():
        patient.sort()
        for (_, end, admission, died), following in zip(patient, [*patient[1:], None], strict=True):
            if not died:
                wait = following[0] - end if following is not None else timedelta(-1)
                returned[admission] = timedelta(0) <= wait <= timedelta(days)
    return returned
