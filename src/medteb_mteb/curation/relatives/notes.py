"""MIMIC-IV from a user's own credentialed copy: discharge notes in sections, and admissions.

Its data never leave the machine: no module that reads them sends anything, and no error quotes a note.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.relatives.raw import in_one_line
from medteb_mteb.curation.relatives.streams import iter_csv

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from medteb_mteb.curation.relatives.raw import Raw

__all__ = [
    "COMPLAINT",
    "DIAGNOSIS",
    "HISTORY",
    "Note",
    "note_fields",
    "read_notes",
    "read_returns",
]

NOTES_SOURCE = (
    "discharge notes of MIMIC-IV-Note, as published (note/discharge.csv.gz; PhysioNet, credentials)"
)
ADMISSIONS_SOURCE = "admissions of MIMIC-IV, as published (hosp/admissions.csv.gz; PhysioNet, credentials)"
COMPLAINT, HISTORY, DIAGNOSIS = "Chief Complaint", "History of Present Illness", "Discharge Diagnosis"
#: Headings that end the previous section in MIMIC-IV's discharge notes.
_HEADINGS = (
    "Chief Complaint|Major Surgical or Invasive Procedure|History of Present Illness|Past Medical History|"
    "Social History|Family History|Physical Exam|Pertinent Results|Brief Hospital Course|"
    "Medications on Admission|Discharge Medications|Discharge Disposition|Facility|Discharge Diagnosis|"
    "Discharge Condition|Discharge Instructions|Followup Instructions"
)
_SECTION = re.compile(rf"^\s*({_HEADINGS})\s*:", re.IGNORECASE | re.MULTILINE)
_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Note:
    """The discharge summary of an admission.

    Attributes:
        admission: Its `hadm_id`.
        fields: Sections by heading, each as a single line.
    """

    admission: str
    fields: Mapping[str, str]

    @property
    def presented(self) -> str:
        """Complaint and history as the authors join them; empty if one is missing."""
        complaint, history = self.fields.get(COMPLAINT, ""), self.fields.get(HISTORY, "")
        return f"{COMPLAINT}: {complaint} {HISTORY}: {history}" if complaint and history else ""

    @property
    def diagnosis(self) -> str:
        """The discharge diagnosis in lower case; empty if there is none."""
        return self.fields.get(DIAGNOSIS, "").lower()


def note_fields(note: str) -> dict[str, str]:
    """Return the sections of a discharge note by heading; if a heading occurs twice, the first counts.

    Args:
        note: Text of a note of MIMIC-IV-Note.
    """
    parts = _SECTION.split(note)
    fields: dict[str, str] = {}
    for heading, text in zip(parts[1::2], parts[2::2], strict=True):
        fields.setdefault(heading.title().replace(" Of ", " of ").replace(" Or ", " or "), in_one_line(text))
    return fields


def read_notes(raw: Raw) -> Iterator[Note]:
    """Yield the first discharge summary of every admission, in file order.

    Args:
        raw: Folder with `discharge.csv.gz` or `discharge.csv`.

    Raises:
        BuildError: The file is missing or malformed.
    """
    path = raw.one("discharge.csv*", NOTES_SOURCE)
    seen: set[str] = set()
    for row in iter_csv(path, ("hadm_id", "note_type", "text")):
        admission = row["hadm_id"]
        if row["note_type"] == "DS" and admission and admission not in seen:  # others are addenda
            seen.add(admission)
            yield Note(admission, note_fields(row["text"]))


def read_returns(raw: Raw, days: int) -> dict[str, bool]:
    """Return whether the next admission began within `days`, by admission that the patient survived.

    Args:
        raw: Folder with `admissions.csv.gz` or `admissions.csv`.
        days: Maximum days from discharge to the next admission.

    Raises:
        BuildError: The file is missing or malformed.
    """
    path = raw.one("admissions.csv*", ADMISSIONS_SOURCE)
    stays: dict[str, list[tuple[datetime, datetime, str, bool]]] = {}
    columns = ("subject_id", "hadm_id", "admittime", "dischtime", "deathtime")
    for number, row in enumerate(iter_csv(path, columns), start=1):
        try:
            start, end = (datetime.fromisoformat(row[name]) for name in ("admittime", "dischtime"))
        except ValueError:
            raise BuildError(
                f"{path}: row {number}: expected admittime and dischtime as YYYY-MM-DD HH:MM:SS."
            ) from None
        if start.tzinfo or end.tzinfo:
            raise BuildError(f"{path}: row {number}: expected times without a zone.")
        died = bool(row["deathtime"].strip())
        stays.setdefault(row["subject_id"], []).append((start, end, row["hadm_id"], died))
    returned: dict[str, bool] = {}
    for patient_stays in stays.values():
        patient_stays.sort()
        following = [*patient_stays[1:], None]
        for (_, end, admission, died), next_stay in zip(patient_stays, following, strict=True):
            if not died:
                returned[admission] = (
                    next_stay is not None and timedelta(0) <= next_stay[0] - end <= days * _DAY
                )
    return returned
