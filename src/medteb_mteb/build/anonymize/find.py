"""Finding identifiers: the recognisers one after the other, or in presidio's engine."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from medteb_mteb.build.anonymize.checks import narrow
from medteb_mteb.build.anonymize.kinds import chosen
from medteb_mteb.build.anonymize.spans import Span, disjoint
from medteb_mteb.build.records import BuildError
from medteb_mteb.build.terms import joined

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from presidio_analyzer import AnalyzerEngine

    from medteb_mteb.build.anonymize.known import Known
    from medteb_mteb.build.anonymize.recogniser import Recogniser

__all__ = ["Finder", "analyzer", "recognisers"]

#: Kinds of which one mention that is sure makes the bare mentions in the same record known too, and from how
#: many characters on.
_REPEATED = {"NAME": 3, "RECORD_NUMBER": 6, "PASSPORT": 7, "BANK_CARD": 10, "ACCOUNT": 7, "ID_CARD": 15}
#: How sure such a mention must be; a name that is a wrong find must not spread.
_SURE = {"NAME": 0.9}


def recognisers(language: str = "zh") -> list[Recogniser]:
    """One of each recogniser, for a registry of presidio.

    Args:
        language: The language that presidio is to know them under; each reads Chinese and English.

    Raises:
        BuildError: presidio-analyzer is not installed.
    """
    try:
        import presidio_analyzer  # noqa: F401
    except ImportError as error:
        raise BuildError("Anonymising needs presidio-analyzer: pip install 'medteb[build]'") from error
    from medteb_mteb.build.anonymize.addresses import Address, EnglishAddress
    from medteb_mteb.build.anonymize.beds import Bed
    from medteb_mteb.build.anonymize.contacts import Account, Email, Landline, Phone, Url
    from medteb_mteb.build.anonymize.dates import BirthDate
    from medteb_mteb.build.anonymize.english_persons import EnglishName
    from medteb_mteb.build.anonymize.papers import (
        BankCard,
        IdentityCard,
        Papers,
        Plate,
        RecordNumber,
        SocialSecurity,
    )
    from medteb_mteb.build.anonymize.persons import PersonName

    classes: list[type[Recogniser]] = [
        *(
            Url,
            Email,
            IdentityCard,
            Phone,
            SocialSecurity,
            Papers,
            RecordNumber,
            BankCard,
            Landline,
            Account,
            Plate,
        ),
        *(BirthDate, Bed, Address, EnglishAddress, PersonName, EnglishName),
    ]
    return [recogniser(language) for recogniser in classes]


@cache
def _shared() -> list[Recogniser]:
    return recognisers()


def analyzer(language: str = "zh") -> AnalyzerEngine:
    """The engine of presidio with these recognisers and no language model; nothing is downloaded."""
    own = recognisers(language)
    from presidio_analyzer import AnalyzerEngine, RecognizerRegistry
    from presidio_analyzer.nlp_engine import NoOpNlpEngine

    registry = RecognizerRegistry(recognizers=own, supported_languages=[language])
    engine = NoOpNlpEngine([{"lang_code": language, "model_name": "no_op"}])
    return AnalyzerEngine(registry=registry, nlp_engine=engine, supported_languages=[language])


class Finder:
    """Finds identifiers of some kinds.

    Calls the recognisers itself: it finds what presidio's engine finds with them (`analyzer`) in about three
    quarters of the time, and what is known by its label in one text of a record also in the others.

    Args:
        kinds: Kinds to look for, of `KINDS`; default all.
        known: Identifiers that are known beforehand.
    """

    def __init__(self, kinds: Iterable[str] | None = None, known: Known | None = None) -> None:
        self.kinds = chosen(kinds)
        self.known = known
        self._recognisers = [one for one in _shared() if one.kind in self.kinds]

    def __call__(self, text: str) -> list[Span]:
        """The identifiers of a text, sorted and without overlap."""
        return self.together([text])[0]

    def together(self, texts: Sequence[str]) -> list[list[Span]]:
        """The identifiers of texts of one record, such as title and text.

        What is known in one of them by its label is found in the others without it.
        """
        texts = list(map(narrow, texts))
        scored = [self._raw(text) for text in texts]
        found = [[span for span, _ in spans] for spans in scored]
        known = {
            (text[span.start : span.end], span.kind)
            for text, spans in zip(texts, scored, strict=True)
            for span, score in spans
            if span.end - span.start >= _REPEATED.get(span.kind, len(text) + 1)
            and score >= _SURE.get(span.kind, 0)
        }
        for value, kind in known:
            for text, spans in zip(texts, found, strict=True):
                start = text.find(value)
                while start >= 0:
                    end = start + len(value)
                    # A number inside a longer one is another number: of a lot, a date.
                    if not (joined(text, start) or joined(text, end)):
                        spans.append(Span(start, end, kind))
                    start = text.find(value, end)
        if self.known is not None:
            for text, spans in zip(texts, found, strict=True):
                spans.extend(self.known.spans(text, self.kinds))
        return [disjoint(spans, text) if spans else [] for text, spans in zip(texts, found, strict=True)]

    def _raw(self, text: str) -> list[tuple[Span, float]]:
        return [
            (Span(start, end, one.kind), score)
            for one in self._recognisers
            if one.needed.search(text)
            for start, end, score in one.spans(text)
        ]
