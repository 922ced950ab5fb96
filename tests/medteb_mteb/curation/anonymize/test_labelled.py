"""Manually marked sentences: which identifiers are found, and that all other text stays unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.anonymize.evaluate import read_marked

from medteb_mteb.curation.anonymize.find import Finder
from medteb_mteb.curation.anonymize.kinds import Span
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
