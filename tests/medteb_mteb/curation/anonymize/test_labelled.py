"""Manually marked sentences: which identifiers are found, and that all other text stays unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.anonymize.evaluate import quality, read_marked

from medteb_mteb.curation.anonymize.find import Finder
from medteb_mteb.curation.anonymize.kinds import IDENTIFIER_KINDS, Span
from medteb_mteb.curation.anonymize.step import Anonymise
from medteb_mteb.curation.files.records import Text

FOLDER = Path(__file__).parent / "labelled"
FILES = ("develop", "held-out", "hard", "later", "strangers-a", "strangers-b")


@pytest.fixture(scope="module")
def finder():
    return Finder()


@pytest.fixture(scope="module")
def sentences():
    return [sentence for name in FILES for sentence in read_marked(FOLDER / f"{name}.txt")]


@pytest.mark.parametrize(
    ("name", "recall", "precision", "disturbed"),
    [
        ("develop", 0.99, 0.99, 1),
        ("held-out", 0.97, 0.95, 1),
        ("hard", 0.9, 0.95, 0),
        ("later", 0.93, 0.95, 2),
    ],
)
def test_recall_and_precision_are_high(finder, name, recall, precision, disturbed):
    result = quality(read_marked(FOLDER / f"{name}.txt"), finder)
    assert result.recall() >= recall, result.errors
    assert result.precision() >= precision, result.errors
    assert result.disturbed <= disturbed
    if name in ("develop", "held-out"):
        assert min(result.recall(exact=True), result.precision(exact=True)) >= 0.95


@pytest.mark.parametrize(
    ("name", "recall", "strict_recall"), [("strangers-a", 0.84, 0.94), ("strangers-b", 0.77, 0.85)]
)
def test_wording_of_people_who_had_not_seen_the_rules_has_high_precision(finder, name, recall, strict_recall):
    sentences = read_marked(FOLDER / f"{name}.txt")
    result = quality(sentences, finder)
    assert result.recall() >= recall, result.errors
    assert result.precision() >= 0.93, result.errors
    strict = Finder(strict=True)
    result = quality(sentences, strict, kinds=[kind for kind in IDENTIFIER_KINDS if kind != "DATE"])
    assert result.recall() >= strict_recall, result.errors


def test_every_kind_by_itself_is_found_with_high_recall_and_precision(finder):
    own = [sentence for name in FILES[:4] for sentence in read_marked(FOLDER / f"{name}.txt")]
    result = quality(own, finder)
    for kind in result.marked:
        assert result.recall(kind) >= 0.94, kind
        assert result.precision(kind) >= 0.95, kind


def test_text_without_identifiers_is_the_same_to_the_byte(finder, sentences):
    step = Anonymise()
    for number, sentence in enumerate(sentences):
        if not sentence.spans and not finder(sentence.text):
            assert step.process(Text(str(number), sentence.text)).text == sentence.text


@pytest.mark.thorough
def test_around_identifiers_nothing_is_touched(finder, sentences):
    step = Anonymise()
    for sentence in sentences:
        spans = finder(sentence.text)
        masked = step.replaced(sentence.text, spans)
        position = 0
        for before, after in zip([Span(0, 0, "NAME"), *spans], [*spans, None], strict=True):
            kept = sentence.text[before.end : after.start if after else None]
            place = masked.index(kept, position)
            assert place >= position
            position = place + len(kept)
        assert masked.endswith(kept)


@pytest.mark.thorough
def test_anonymising_twice_changes_nothing(sentences):
    step = Anonymise()
    for sentence in sentences:
        once = step.process(Text("a", sentence.text)).text
        assert step.process(Text("b", once)).text == once
