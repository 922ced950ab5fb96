"""Kinds of identifiers: the choice of kinds, and their placeholders."""

from __future__ import annotations

import pytest

from mar_st.errors import MarError
from medteb_mteb.curation.anonymize.kinds import IDENTIFIER_KINDS, chosen, placeholder


def test_strict_kinds_are_looked_for_in_strict_mode_or_by_name():
    assert "DATE" not in chosen(None)
    assert chosen(None, strict=True) == tuple(IDENTIFIER_KINDS)
    assert set(chosen(None, strict=True)) - set(chosen(None)) == {"DATE"}
    assert chosen(["DATE"]) == ("DATE",)


def test_named_kinds_are_in_the_order_of_all_kinds_and_each_once():
    assert chosen([" name ", "Url", "NAME", "phone"]) == ("URL", "PHONE", "NAME")
    assert chosen(reversed(IDENTIFIER_KINDS)) == tuple(IDENTIFIER_KINDS)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "No kind of identifier was selected"),
        (["NMAE"], "no kind of identifier 'NMAE'"),
        (["NAME", "fingerprint"], "'FINGERPRINT'. Kinds are URL, EMAIL, .*, DATE"),
        ([""], "no kind of identifier ''"),
        ("NAME", "no kind of identifier 'A'"),
    ],
)
def test_unknown_kinds_are_refused(names, message):
    with pytest.raises(MarError, match=message):
        chosen(names)


def test_placeholders_are_in_the_language_of_the_text_and_tell_kinds_apart():
    assert (placeholder("NAME", chinese=True), placeholder("NAME", chinese=False)) == ("[姓名]", "[NAME]")
    for chinese in (True, False):
        assert len({placeholder(kind, chinese=chinese) for kind in IDENTIFIER_KINDS}) == len(IDENTIFIER_KINDS)
