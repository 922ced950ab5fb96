"""Checksums and dates, which distinguish identifiers from numbers that look like them."""

from __future__ import annotations

import datetime as dt
import re
import unicodedata
from functools import cache

__all__ = ["digits_of", "id_card_digit", "is_date", "is_id_card", "passes_luhn", "plain"]

#: First two digits of an identity card: the province.
PROVINCES = frozenset(
    f"{number}"
    for number in (*range(11, 16), 21, 22, 23, *range(31, 38), *range(41, 47), *range(50, 55), *range(61, 66))
) | {"71", "81", "82", "83"}
#: Full-width letters, digits and the characters that join them; the rules match full-width punctuation as is.
_WIDE = "".join(map(chr, (*range(0xFF10, 0xFF1A), *range(0xFF21, 0xFF3B), *range(0xFF41, 0xFF5B)))) + "＠＿－"
_NARROW = str.maketrans({char: unicodedata.normalize("NFKC", char) for char in _WIDE})
_HAS_WIDE = re.compile(f"[{_WIDE}]")
_WIDE_DOT = re.compile("(?<=[A-Za-z0-9])．(?=[A-Za-z0-9])")
_WEIGHTS = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)


def digits_of(text: str) -> str:
    """Return the digits of a text, full-width ones as ASCII."""
    return "".join(str(unicodedata.digit(char)) for char in text if char.isdigit())


def plain(text: str) -> str:
    """Return the text in the form that the rules match; every character keeps its position.

    Full-width letters and digits become ASCII, traditional characters become simplified ones.
    """
    if _HAS_WIDE.search(text):
        text = _WIDE_DOT.sub(".", text.translate(_NARROW))
    return text.translate(_simplified())


@cache
def _simplified() -> dict[int, str]:
    """Return the simplified characters by the code point of the traditional ones."""
    from opencc import OpenCC  # lazy: opencc

    convert = OpenCC("t2s").convert
    pairs = ((code, convert(chr(code))) for code in range(0x4E00, 0xA000))
    return {code: simple for code, simple in pairs if simple != chr(code) and len(simple) == 1}


def id_card_digit(first: str) -> str:
    """Return the check digit (0-9 or X) of an identity card's first 17 digits (GB 11643-1999)."""
    return "10X98765432"[sum(w * int(digit) for w, digit in zip(_WEIGHTS, first, strict=True)) % 11]


def is_date(year: str, month: str, day: str) -> bool:
    """Return True if the date exists and is in the years 1880 to 2079."""
    try:
        return 1880 <= dt.date(int(year), int(month), int(day)).year < 2080
    except (ValueError, OverflowError):
        return False


def is_id_card(number: str) -> bool:
    """Return True if 15, or at least 17, digits hold a province and a birth date; ignores the check digit."""
    if number[:2] not in PROVINCES:
        return False
    if len(number) == 15:
        return is_date(f"19{number[6:8]}", number[8:10], number[10:12])
    return is_date(number[6:10], number[10:12], number[12:14])


def passes_luhn(number: str) -> bool:
    """Return True if a number passes the Luhn check (ISO/IEC 7812-1)."""
    doubled = (int(digit) * (1 + place % 2) for place, digit in enumerate(reversed(number)))
    return sum(value - 9 * (value > 9) for value in doubled) % 10 == 0
