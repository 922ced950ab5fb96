"""Where journals of answers are kept."""

from __future__ import annotations

import pytest

from medteb_mteb.curation.llm.paths import ANSWERS_VARIABLE, answers_path, journal_place


@pytest.fixture(autouse=True)
def _unset(monkeypatch):
    monkeypatch.delenv(ANSWERS_VARIABLE, raising=False)


def test_a_journal_lies_beside_the_output_and_never_inside(tmp_path, monkeypatch):
    assert answers_path(tmp_path / "out") == tmp_path / "answers.sqlite"
    assert answers_path(str(tmp_path / "out") + "/") == tmp_path / "answers.sqlite"
    monkeypatch.chdir(tmp_path)
    assert answers_path("out") == tmp_path / "answers.sqlite"


def test_the_variable_is_used_unless_a_path_is_given(tmp_path, monkeypatch):
    monkeypatch.setenv(ANSWERS_VARIABLE, str(tmp_path / "all.sqlite"))
    assert answers_path(tmp_path / "out") == tmp_path / "all.sqlite"
    assert answers_path(tmp_path / "out", tmp_path / "own.sqlite") == tmp_path / "own.sqlite"


def test_an_empty_variable_counts_as_unset(tmp_path, monkeypatch):
    monkeypatch.setenv("MEDTEB_OTHER", "")
    assert journal_place(tmp_path / "out", None, "MEDTEB_OTHER", "x.sqlite") == tmp_path / "x.sqlite"
