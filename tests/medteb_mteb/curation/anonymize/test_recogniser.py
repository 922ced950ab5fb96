"""The base class of the recognisers: checks of matches, requested kinds, and texts that are skipped."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.anonymize.evaluate import read_marked

from medteb_mteb.curation.anonymize.checks import plain
from medteb_mteb.curation.anonymize.find import Finder, recognisers
from medteb_mteb.curation.anonymize.recogniser import IdentifierPattern, Recogniser

LABELLED = Path(__file__).parent / "labelled"


class Ticket(Recogniser):
    """Numbers with a label, of which 00 is not issued."""

    kind = "RECORD_NUMBER"
    needs = r"\d"
    rules = (
        IdentifierPattern("label", r"票\s?\K\d*", 0.9),
        IdentifierPattern("letter", r"T\d{2}", 0.4),
    )

    def check(self, match, rule):
        """Reject 00."""
        return 0 if match.group().endswith("00") else super().check(match, rule)


def results(text, kinds=()):
    return [(text[one.start : one.end], one.score) for one in Ticket().analyze(text, list(kinds))]


def test_each_match_has_the_score_of_its_rule_and_no_label():
    assert results("票 17，T42") == [("17", 0.9), ("T42", 0.4)]


def test_rejected_and_empty_matches_are_left_out():
    assert results("票 100，T00，票，票 1") == [("1", 0.9)]


def test_only_requested_kinds_are_looked_for():
    assert results("票 17", ["RECORD_NUMBER", "NAME"]) == [("17", 0.9)]
    assert results("票 17", ["NAME"]) == []


def test_full_width_and_traditional_characters_keep_their_places():
    assert results("乳癌術後，票　１７，Ｔ４２") == [("１７", 0.9), ("Ｔ４２", 0.4)]


@pytest.mark.parametrize(
    ("personal", "thing"),
    [
        ("电话13800138000", "批号13800138000"),
        ("打13800138000", "货号：13800138000"),
        ("13800138000", "LOT 13800138000"),
    ],
)
def test_a_product_number_is_not_a_phone(personal, thing):
    finder = Finder()
    assert [span.kind for span in finder(personal)] == ["PHONE"]
    assert finder(thing) == []


def test_no_text_is_skipped_that_holds_an_identifier():
    texts = [plain(one.text) for path in LABELLED.glob("*.txt") for one in read_marked(path)]
    texts += ["阳光花园3座502", "阳光公寓12F", "籍贯：山东济南", '{"name": "Michael Johnson"}']
    found = [
        (recogniser.name, text)
        for recogniser in recognisers()
        if recogniser.name != "BareName"  # loads large tables
        for text in texts
        if not recogniser.needed.search(text) and any(recogniser.spans(text))
    ]
    assert len(texts) > 600
    assert found == []
