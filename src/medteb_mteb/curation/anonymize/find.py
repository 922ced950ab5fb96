"""Finds identifiers with the recognisers."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from mar_st.files import load_package
from medteb_mteb.curation.anonymize.checks import plain
from medteb_mteb.curation.anonymize.kinds import STRICT_KIND, Span, disjoint
from medteb_mteb.curation.texts.terms import joined

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from medteb_mteb.curation.anonymize.known import Known
    from medteb_mteb.curation.anonymize.recogniser import Recogniser

__all__ = ["MIN_SCORE", "Finder", "recognisers"]

#: Minimum score of a match outside strict mode.
MIN_SCORE = 0.5
#: The same for matches of last resort in a record with another identifier: a phone is rarely without a name.
MIN_SCORE_BESIDE = 0.1
#: Kinds of which a certain mention also reveals the mentions without label in the same record, with the
#: minimum number of characters for that.
_MIN_REPEATED_LENGTHS = {
    "NAME": 3,
    "RECORD_NUMBER": 6,
    "PASSPORT": 7,
    "BANK_CARD": 10,
    "ACCOUNT": 7,
    "ID_CARD": 15,
}
#: Minimum score of such a mention; a false name must not spread.
_MIN_REPEATED_SCORES = {"NAME": 0.9}


@cache
def recognisers() -> tuple[Recogniser, ...]:
    """Return one of each recogniser.

    Raises:
        MarError: presidio-analyzer is not installed.
    """
    load_package("presidio_analyzer", extra="build")
    from medteb_mteb.curation.anonymize import (  # lazy: presidio_analyzer
        addresses,
        bare_names,
        contacts,
        papers,
        persons,
    )

    return (
        contacts.Url(), contacts.Email(), papers.IdentityCard(), contacts.Phone(), papers.SocialSecurity(),
        papers.Papers(), papers.RecordNumber(), papers.BankCard(), contacts.Landline(),
        contacts.MessengerAccount(), papers.Plate(), addresses.BirthDate(), addresses.AnyDate(),
        addresses.Bed(), addresses.Address(), addresses.EnglishAddress(), persons.PersonName(),
        persons.EnglishName(), persons.DottedName(), bare_names.BareName(), papers.Code(),
    )  # fmt: skip


class Finder:
    """Finds identifiers.

    It calls the recognisers directly, which is faster than presidio's engine. In addition, an identifier with
    a label in one text of a record is also found in the other texts.

    Args:
        known: Identifiers that are known beforehand.
        strict: Also find doubtful identifiers (with a score below `MIN_SCORE`) and dates.
        cleared: Kinds and values that are not identifiers according to a reviewer; they are ignored if only
            recognisers of last resort find them.
    """

    def __init__(
        self,
        known: Known | None = None,
        *,
        strict: bool = False,
        cleared: Collection[tuple[str, str]] = (),
    ) -> None:
        self.known = known
        self.least = 0.0 if strict else MIN_SCORE
        self.cleared = frozenset(cleared)
        self._recognisers = [one for one in recognisers() if strict or one.kind != STRICT_KIND]

    def __call__(self, text: str) -> list[Span]:
        """Return the identifiers of a text, sorted and without overlap."""
        return self.together([text])[0]

    def together(self, texts: Sequence[str]) -> list[list[Span]]:
        """Return the identifiers of texts of one record, such as title and text.

        An identifier with a label in one of them is found in the others without it.
        """
        texts = list(map(plain, texts))
        scored = [self._certain(text) for text in texts]
        # One character is a surname before a title (王医生), which says nothing about the rest.
        beside = any(span.end - span.start > 1 for spans in scored for span, _ in spans)
        least = min(self.least, MIN_SCORE_BESIDE) if beside else self.least
        for text, certain in zip(texts, scored, strict=True):
            certain += self._last_resort(text, certain, least)
        identifiers = [[span for span, _ in spans] for spans in scored]
        known = {
            (text[span.start : span.end], span.kind)
            for text, spans in zip(texts, scored, strict=True)
            for span, score in spans
            if span.end - span.start >= _MIN_REPEATED_LENGTHS.get(span.kind, len(text) + 1)
            and score >= _MIN_REPEATED_SCORES.get(span.kind, 0)
        }
        for value, kind in known:
            for text, spans in zip(texts, identifiers, strict=True):
                start = text.find(value)
                while start >= 0:
                    end = start + len(value)
                    # A number inside a longer one is another number, such as a lot number or a date.
                    if not (joined(text, start) or joined(text, end)):
                        spans.append(Span(start, end, kind))
                    start = text.find(value, end)
        if self.known is not None:
            for text, spans in zip(texts, identifiers, strict=True):
                spans.extend(self.known.spans(text))
        return [
            disjoint(spans, text) if spans else [] for text, spans in zip(texts, identifiers, strict=True)
        ]

    def _certain(self, text: str) -> list[tuple[Span, float]]:
        return [
            (Span(start, end, recogniser.kind), score)
            for recogniser in self._recognisers
            if not recogniser.last_resort and recogniser.needed.search(text)
            for start, end, score in recogniser.spans(text)
            if score >= self.least
        ]

    def _last_resort(
        self, text: str, certain: Sequence[tuple[Span, float]], least: float
    ) -> list[tuple[Span, float]]:
        return [
            (Span(start, end, recogniser.kind), score)
            for recogniser in self._recognisers
            if recogniser.last_resort and recogniser.needed.search(text)
            for start, end, score in recogniser.spans(text)
            if score >= least
            and (recogniser.kind, text[start:end]) not in self.cleared
            and not any(start < span.end and span.start < end for span, _ in certain)
        ]
