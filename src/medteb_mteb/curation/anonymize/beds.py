"""Recogniser of hospital beds, with ward and hospital if they are given."""

from __future__ import annotations

from typing import TYPE_CHECKING

import regex

from medteb_mteb.curation.anonymize.addresses import NOT_IN_PLACE_NAMES
from medteb_mteb.curation.anonymize.recogniser import Recogniser

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Bed"]

_CHAR = rf"[\p{{Han}}--[{NOT_IN_PLACE_NAMES.replace('病', '')}转邀将床加]]"
_BED = regex.compile(
    r"(?P<bed>(?<![\d.-])(?:加|临)?(?:\d{1,3}|(?<![A-Z])[A-Z]\d{1,2})(?:[-—+]\d{1,2}|[A-D])?\s?号?床)"
    r"(?![位旁边头垫单栏铺被褥]|(?<!号床)[上下]|棉被|被子)"
    r"|床\s?号\s?(?:[:：]|是|为)?\s*(?P<value>(?:加|临)?(?:[A-Z]?\d{1,3})(?:[-—+]\d{1,2}|[A-D])?)(?![\d.]|\s?床)"
    r"|(?P<english>\b(?i:(?:(?:ward|room|rm|unit|icu|micu|sicu|nicu|ccu|picu)\.?\s?(?:no\.?\s?)?[A-Z\d]{0,5},?\s){1,2}"
    r"bed\s?(?:no\.?\s?)?)(?:[A-D]|[A-Z]?\d{1,3}[A-Z]?)\b)",
    regex.VERSION1,
)
_WARD = (
    rf"(?:{_CHAR}{{0,9}}?\d{{0,2}}(?:科|病区|病房|监护室|抢救室|观察室|留观室?|产房|楼|区|层|室|组)"
    r"|(?:[A-Z]{1,2})?(?:ICU|CCU)(?:病房|室)?)\d{0,2}"
)
_HOSPITAL = rf"{_CHAR}{{2,16}}?(?:医院|卫生院|保健院|附[一二三]?院|[省市县]?[一二三四五六七八九]院|院区)"
_WARD_BEFORE = regex.compile(
    rf"(?:{_HOSPITAL}(?:{_HOSPITAL})?\s?)?(?:{_WARD}[\s，,]?){{1,4}}$|{_HOSPITAL}\s?$", regex.VERSION1
)
_NUMBER_OF_BEDS = regex.compile(r"(?:开放|共|设|有|增|近|约|余|达|编制|床位|多|至|病床)\s?(?:加)?$")
_CONTEXT_LENGTH = 40


class Bed(Recogniser):
    """Numbers that identify a bed, not counts of beds."""

    kind = "BED"
    needs = r"\d\s?号?床|[A-D]床|床\s?号|(?i:\bbed\b)"

    def spans(self, text: str) -> Iterator[tuple[int, int, float]]:
        """Yield start, end and score of each bed; a name of the hospital before it is included."""
        for match in _BED.finditer(text):
            if match["bed"] is None:
                yield *match.span("english" if match["english"] else "value"), 0.7
                continue
            start, end = match.span("bed")
            context = text[max(0, start - _CONTEXT_LENGTH) : start]
            if before := _WARD_BEFORE.search(context):
                yield start - len(context) + before.start(), end, 0.8
            elif not _NUMBER_OF_BEDS.search(context):
                yield start, end, 0.6
