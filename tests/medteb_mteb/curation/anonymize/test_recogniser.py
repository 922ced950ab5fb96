"""Numbers of products, and texts that recognisers skip."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.anonymize.evaluate import read_marked

from medteb_mteb.curation.anonymize.checks import plain
from medteb_mteb.curation.anonymize.find import Finder, recognisers

LABELLED = Path(__file__).parent / "labelled"


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
