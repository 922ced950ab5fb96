"""The 26 tasks of English MedTEB from MIMIC-IV, built from a user's own credentialed copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.relatives.notes import read_notes, read_returns
from medteb_mteb.curation.relatives.rows import (
    MAX_LABELLED_ROWS,
    MAX_ROWS,
    Draw,
    labelled,
    pair_rows,
    retrieval_rows,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from medteb_mteb.curation.relatives.raw import Raw

__all__ = [
    "DIAGNOSES",
    "FIELD_PAIRS",
    "READMISSIONS",
    "label_rows",
    "note_pairs",
    "note_retrieval",
    "return_rows",
]

#: Number of nearest texts from which hard negatives are drawn.
NEGATIVE_CANDIDATES = 128
_EMPTY_LABEL_HINT = (
    "this copy has no note with one of its discharge diagnoses; the published one has all notes"
)

#: Discharge diagnoses by the end of the task's name and by label. The labels of the general tasks are those
#: in the tasks' names.
DIAGNOSES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "specific_Infectious_Diseases": {
        "Respiratory": ("Pneumonia", "COPD exacerbation"),
        "Soft_Tissue": ("Cellulitis",),
        "Urinary_Tract": ("Urinary tract infection",),
        "Biliary_System": ("Choledocholithiasis",),
    },
    "specific_Abdominal_Conditions": {
        "Obstructions": ("Small bowel obstruction", "Partial small bowel obstruction"),
        "Inflammatory": ("Acute appendicitis", "Acute cholecystitis", "Diverticulitis", "Pancreatitis"),
        "Pain": ("Abdominal pain", "Chest pain"),
    },
    "specific_Musculoskeletal_Disorders": {
        "Osteoarthritis": (
            "Right knee osteoarthritis", "Left knee osteoarthritis", "Right hip osteoarthritis",
            "Left hip osteoarthritis",
        ),
        "Stenosis": ("Lumbar stenosis", "Cervical stenosis"),
    },
    "specific_Neurological_Conditions": {
        "Seizure_Disorders": ("Epilepsy", "Seizure", "Seizures"),
        "Critical_Neurology": ("Acute ischemic stroke", "CNS lymphoma", "Syncope"),
    },
    "specific_Cancer_Types": {
        "Breast_Cancer": ("Right breast cancer",),
        "Prostate_Cancer": ("PROSTATE CANCER",),
        "Other": ("AML", "Peripheral Arterial Disease"),
    },
    "general_Infectious_vs_NonInfectious_Conditions": {
        "Infectious": (
            "Pneumonia", "Cellulitis", "Urinary tract infection", "Choledocholithiasis", "COPD exacerbation",
        ),
        "NonInfectious": (
            "Small bowel obstruction", "Acute appendicitis", "Pancreatitis", "Right knee osteoarthritis",
            "Epilepsy",
        ),
    },
    "general_Neurological_vs_Musculoskeletal_Conditions": {
        "Neurological": ("Seizure", "Acute ischemic stroke", "Syncope", "CNS lymphoma"),
        "Musculoskeletal": (
            "Right knee osteoarthritis", "Left knee osteoarthritis", "Lumbar stenosis", "Cervical stenosis",
        ),
    },
    "general_Mortality_vs_Survivable_Conditions": {
        "Mortality": ("Deceased", "Expired", "Patient expired", "Acute ischemic stroke"),
        "Survivable": ("Abdominal pain", "Right knee osteoarthritis", "Epilepsy", "Pneumonia"),
    },
    "general_Cancer_vs_Chronic_Conditions": {
        "Cancer": ("Right breast cancer", "PROSTATE CANCER", "AML"),
        "Chronic": (
            "Peripheral Arterial Disease", "Morbid obesity", "Lumbar stenosis", "COPD exacerbation",
        ),
    },
}  # fmt: skip

#: Days within which a patient returns, by the end of the task's name.
READMISSIONS: Mapping[str, int] = {"readmission_3_days": 3, "readmission_30_days": 30}

#: Two sections of a note, by the end of the task's name.
FIELD_PAIRS: Mapping[str, tuple[str, str]] = {
    f"{first}_vs_{second}".replace(" ", "_"): (first, second)
    for first, second in (
        ("Chief Complaint", "Discharge Diagnosis"),
        ("History of Present Illness", "Chief Complaint"),
        ("Discharge Instructions", "History of Present Illness"),
        ("Chief Complaint", "Discharge Instructions"),
        ("History of Present Illness", "Discharge Diagnosis"),
        ("Discharge Instructions", "Chief Complaint"),
    )
}


def label_rows(raw: Raw, task: str, group: str) -> list[dict[str, str]]:
    """Return complaint and history of the notes whose entire discharge diagnosis is one of the task's.

    Args:
        raw: A copy of MIMIC-IV-Note.
        task: Name of the task.
        group: A key of `DIAGNOSES`.

    Raises:
        BuildError: A file is missing or malformed, or a label has no note.
    """
    label_of = {name.lower(): label for label, names in DIAGNOSES[group].items() for name in names}
    texts: dict[str, list[str]] = {label: [] for label in DIAGNOSES[group]}
    for note in read_notes(raw):
        label = label_of.get(note.diagnosis)
        if label is not None and note.presented:
            texts[label].append(note.presented)
    return labelled(task, texts, _EMPTY_LABEL_HINT)


def return_rows(raw: Raw, task: str, days: int) -> list[dict[str, str]]:
    """Return complaint and history of notes, half of patients who returned and half of others.

    Args:
        raw: A copy of MIMIC-IV and MIMIC-IV-Note.
        task: Name of the task.
        days: Days within which a patient returned.

    Raises:
        BuildError: A file is missing or malformed, or one of the two labels has no note.
    """
    returned = read_returns(raw, days)
    draws: dict[bool, Draw[str]] = {answer: Draw(MAX_LABELLED_ROWS // 2) for answer in (True, False)}
    for note in read_notes(raw):
        if note.presented and note.admission in returned:
            draws[returned[note.admission]].add(note.presented, note.presented)
    each = min(len(draw) for draw in draws.values())
    if not each:
        raise BuildError(
            f"{task}: of the notes with complaint and history, {len(draws[True])} are of patients who "
            f"returned and {len(draws[False])} of others; some of both are needed."
        )
    return [
        {"text": text, "label": "readmitted" if answer else "not readmitted"}
        for answer, draw in draws.items()
        for text in draw.items(each)
    ]


def note_retrieval(raw: Raw, fields: tuple[str, str]) -> list[dict[str, str]]:
    """Return one section of each note as query and another section as its document.

    Args:
        raw: A copy of MIMIC-IV-Note.
        fields: Headings of the two sections.

    Raises:
        BuildError: The file is missing or malformed.
    """
    return retrieval_rows([pair for pair, _ in _drawn(raw, fields, MAX_ROWS)])


def note_pairs(raw: Raw, fields: tuple[str, str], negatives: str) -> list[dict[str, str | int]]:
    """Return pairs of two sections of a note (label 1), and of the first one and a negative (label 0).

    The negative is a similar section of a note with another discharge diagnosis.

    Args:
        raw: A copy of MIMIC-IV-Note.
        fields: Headings of the two sections.
        negatives: Method that finds near texts, see `by` of `hard_negatives`.

    Raises:
        BuildError: The file is missing or malformed.
    """
    drawn = _drawn(raw, fields, MAX_ROWS // 2)
    pairs, groups = [pair for pair, _ in drawn], [group for _, group in drawn]
    return pair_rows(pairs, NEGATIVE_CANDIDATES, negatives, groups)


def _drawn(raw: Raw, fields: tuple[str, str], max_pairs: int) -> list[tuple[tuple[str, str], str]]:
    """Return at most `most` distinct pairs of sections with the diagnosis of their note, in file order."""
    draw: Draw[tuple[tuple[str, str], str]] = Draw(max_pairs)
    for note in read_notes(raw):
        first, second = (note.fields.get(name, "") for name in fields)
        if first and second:
            group = note.diagnosis or f"admission {note.admission}"
            draw.add(f"{first}\0{second}", ((first, second), group))
    return draw.items()
