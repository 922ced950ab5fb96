"""English names after a title, a label or a role, or before a degree; other capitalised words stay."""

from __future__ import annotations

import pytest

from medteb_mteb.curation.anonymize.persons import EnglishName


@pytest.fixture(scope="module")
def names():
    recogniser = EnglishName()
    return lambda text: sorted({text[one.start : one.end] for one in recogniser.analyze(text, [])})


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Dr. Johnson was informed.", "Johnson"),
        ("Mrs Mary O'Brien denies pain.", "Mary O'Brien"),
        ("Professor J. Van Dyke agreed.", "J. Van Dyke"),
        ("Patient name: Michael Johnson, male", "Michael Johnson"),
        ("Next of kin: Anne-Marie Dubois", "Anne-Marie Dubois"),
        ("Surgeon: R. McDonald", "R. McDonald"),
        ("Dictated by John A. Smith on rounds", "John A. Smith"),
        ("her husband Peter Brown called", "Peter Brown"),
        ("Discharge summary for Laura Stone", "Laura Stone"),
        ("evaluated by Karen Whitfield, MD", "Karen Whitfield"),
        ("Karen Whitfield, RN", "Karen Whitfield"),
        ("Karen Whitfield (PhD)", "Karen Whitfield"),
    ],
)
def test_a_name_is_found_without_its_title_label_or_degree(names, text, name):
    assert names(text) == [name]
    assert names(f"Vital signs stable. {text}") == [name]


@pytest.mark.parametrize(
    "text",
    [
        "Patient Denies Chest Pain",
        "patient with Parkinson Disease",
        "her mother had Crohn Disease",
        "Dr. Hospital",
        "Provider Information",
        "daughter Peter",
        "Karen Whitfield",
        "dr johnson",
        "name: aspirin",
        "MD",
        "",
    ],
)
def test_ordinary_words_diseases_and_bare_names_are_not_names(names, text):
    assert names(text) == []
