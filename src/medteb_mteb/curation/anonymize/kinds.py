"""The kinds of identifiers, most specific first, and their spans in a text."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["IDENTIFIER_KINDS", "STRICT_KIND", "Span", "disjoint", "placeholder"]


#: Placeholder of each kind in texts with Chinese characters.
IDENTIFIER_KINDS: dict[str, str] = {
    "URL": "网址",  # web addresses that hold an id, a user or a query; a bare site stays
    "EMAIL": "邮箱",
    "ID_CARD": "身份证号",  # 18 digits with checksum, 15 digits with a label
    "PHONE": "电话",  # mobile phones, international and US numbers; service hotlines stay
    "SSN": "社会安全号",
    "PASSPORT": "证件号",  # passports, travel permits and officers' cards, with their label
    "RECORD_NUMBER": "病历号",  # numbers of stays, records, visits, insurance, examinations, with a label
    "BANK_CARD": "银行卡号",  # bank cards (Luhn), and account numbers with a label
    "LANDLINE": "座机",  # with area code, or with a label
    "ACCOUNT": "账号",  # WeChat, QQ and similar accounts, with their label
    "PLATE": "车牌号",
    "BIRTH_DATE": "出生日期",  # dates said to be of birth, at least year and month
    "BED": "床位",  # bed numbers, with hospital and ward where given
    "ADDRESS": "地址",  # below the district: town, village, road with number, building, room
    "NAME": "姓名",  # with a label or a title, or in a place where names stand
    "DATE": "日期",  # with a day: of visits, operations, reports
}
#: The kind that is recognised only in strict mode.
STRICT_KIND = "DATE"


def placeholder(kind: str, *, chinese: bool) -> str:
    """Return the placeholder of an identifier: `[姓名]`, or `[NAME]` in a text without Chinese."""
    return f"[{IDENTIFIER_KINDS[kind]}]" if chinese else f"[{kind}]"


_ORDER = {kind: number for number, kind in enumerate(IDENTIFIER_KINDS)}


class Span(NamedTuple):
    """An identifier in a text.

    Attributes:
        start: Offset of its first character.
        end: Offset after its last character.
        kind: One of `IDENTIFIER_KINDS`.
    """

    start: int
    end: int
    kind: str


def disjoint(spans: Iterable[Span], text: str) -> list[Span]:
    """Return spans that do not overlap and cover every letter and digit of the given spans.

    Of overlapping spans, the longest one is kept; of equally long spans, the one with the more specific kind
    (the order of `IDENTIFIER_KINDS`). The rest of a span beyond the kept one becomes a separate span.

    Returns:
        The spans, sorted by start.
    """
    ranked = sorted(set(spans), key=lambda span: (span.start - span.end, _ORDER[span.kind], span.start))
    taken: list[Span] = []
    for span in ranked:
        for start, end in _free(span, taken):
            if any(char.isalnum() for char in text[start:end]):
                insort(taken, Span(start, end, span.kind))
    return taken


def _free(span: Span, taken: list[Span]) -> list[tuple[int, int]]:
    """Return the parts of a span that no span of `taken` covers; `taken` is sorted and without overlap."""
    parts, position = [], span.start
    number = max(bisect_left(taken, span.start, key=lambda other: other.start) - 1, 0)
    while number < len(taken) and taken[number].start < span.end:
        other = taken[number]
        if other.start > position:
            parts.append((position, other.start))
        position = max(position, other.end)
        number += 1
    if position < span.end:
        parts.append((position, span.end))
    return parts
