"""Provenance of an edition, read from its file."""

from __future__ import annotations

import json

import pytest

from medteb_mteb.editions import EditionError
from medteb_mteb.editions.provenance import days, mappings, read_provenance


def test_a_folder_without_the_file_has_no_provenance(tmp_path):
    assert read_provenance(tmp_path) == {}


def test_the_file_is_read_as_it_was_written(tmp_path):
    content = {"sources": [{"name": "问诊😀", "licence": "mit"}], "contamination": None}
    for escaped in (False, True):
        (tmp_path / "provenance.json").write_text(json.dumps(content, ensure_ascii=escaped), encoding="utf-8")
        assert read_provenance(tmp_path) == content


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "cannot be read as JSON"),
        (b'{"judges": [', "cannot be read as JSON"),
        (b"\xff\xfe{\x00}\x00", "cannot be read as JSON"),
        (b'{"a":' * 100_000, "cannot be read as JSON"),
        (b'{"a": ' + b"1" * 5000 + b"}", "cannot be read as JSON"),
        # It could be written neither to a card nor to a datasheet.
        (b'{"sources": [{"name": "\\ud800"}]}', "cannot be read as JSON"),
        (b"[]", "does not hold a JSON object"),
        (b"null", "does not hold a JSON object"),
    ],
)
def test_a_broken_file_is_refused_with_what_to_do(tmp_path, data, message):
    (tmp_path / "provenance.json").write_bytes(data)
    with pytest.raises(EditionError, match=rf"provenance\.json {message}.* Restore it, or delete it\."):
        read_provenance(tmp_path)


def test_a_folder_of_that_name_is_refused(tmp_path):
    (tmp_path / "provenance.json").mkdir()
    with pytest.raises(EditionError, match="cannot be read"):
        read_provenance(tmp_path)


@pytest.mark.parametrize("listed", [None, "judges", {"name": "a"}, 3, [], ["a", 1, None, []]])
def test_a_value_that_is_not_a_list_has_no_objects(listed):
    assert mappings({"judges": listed}, "judges") == []
    assert mappings({}, "judges") == []


def test_only_the_objects_of_a_list_are_kept():
    assert mappings({"judges": [{"name": "a"}, "b", {}, None]}, "judges") == [{"name": "a"}, {}]


@pytest.mark.parametrize(
    ("answered", "expected"),
    [
        ([["2026-11-03"], ["2026-11-01", "2026-11-02"]], ("2026-11-01", "2026-11-03")),
        ([["2026-11-01"], ["2026-11-01"]], ("2026-11-01",)),
        ([["2025-12-31", "2026-01-01"]], ("2025-12-31", "2026-01-01")),
        ([[], []], ()),
        ([], ()),
        ([[None, "", 20261101, ["2026-11-01"], {"day": 1}, True]], ()),
        ([[None, "2026-11-01", 7]], ("2026-11-01",)),
    ],
)
def test_days_are_the_first_and_the_last_known(answered, expected):
    judges = [{"name": "a", "answered": [{"date": date, "pairs": 1} for date in dates]} for dates in answered]
    assert days(judges) == expected


def test_judges_without_a_list_of_answers_have_no_days():
    assert days([{"answered": "2026-11-01"}, {}, {"answered": [{"pairs": 1}, "2026-11-01"]}]) == ()
