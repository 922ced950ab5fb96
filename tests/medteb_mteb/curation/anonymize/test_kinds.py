"""Placeholders of the kinds of identifiers."""

from __future__ import annotations

from medteb_mteb.curation.anonymize.kinds import IDENTIFIER_KINDS, placeholder


def test_placeholders_are_in_the_language_of_the_text_and_tell_kinds_apart():
    assert (placeholder("NAME", chinese=True), placeholder("NAME", chinese=False)) == ("[姓名]", "[NAME]")
    for chinese in (True, False):
        assert len({placeholder(kind, chinese=chinese) for kind in IDENTIFIER_KINDS}) == len(IDENTIFIER_KINDS)
