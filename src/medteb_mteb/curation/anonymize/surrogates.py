"""Surrogates that keep the form of an identifier, consistent and irreversible.

The surrogate of an identifier is derived from a secret (HMAC-SHA256). If the form allows it, a surrogate is
an identifier that cannot exist: an identity card without a valid province, a phone number in an unassigned
range.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import TYPE_CHECKING

from filelock import FileLock

from mar_st.errors import MarError
from mar_st.files import write_text
from medteb_mteb.curation.anonymize.checks import plain
from medteb_mteb.curation.anonymize.kinds import placeholder
from medteb_mteb.curation.anonymize.words import COMPOUND, words

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["Surrogates", "salt_for"]

#: Fewest bytes of a secret.
_MIN_SALT = 16

_HAN = re.compile("[\u4e00-\u9fff]")
_COUNTRY = re.compile(r"[+＋]?(?:00)?86[-\s]?(?=\D*1[3-9])|(?:\+|00)\d{1,3}(?=[-\s.(])")
_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"
#: What a surrogate begins with, by kind whose form is kept: provinces, ranges and issuers that do not exist.
_BEGINNINGS = {
    "ID_CARD": "00",
    "PHONE": "10",
    "SSN": "000",
    "PASSPORT": "",
    "RECORD_NUMBER": "",
    "BANK_CARD": "0",
    "LANDLINE": "019",
    "ACCOUNT": "0",
    "PLATE": "I",
}
_PROVINCES = "京津沪渝冀豫云辽黑湘皖鲁新苏浙赣鄂桂甘晋蒙陕吉闽贵粤青藏川宁琼"
_TO_DIGITS = str.maketrans("零〇○一幺二三四五六七八九", "0001123456789")
_TO_NUMERALS = str.maketrans("0123456789", "零一二三四五六七八九")
_SURNAMES, _GIVEN = "".join(words("surrogate-surnames")), "".join(words("surrogate-given"))
_LATIN = words("surrogate-last-names")


class Surrogates:
    """Surrogates of identifiers.

    Args:
        salt: The secret, at least 16 bytes; anyone who has it can test guesses.
    """

    def __init__(self, salt: bytes) -> None:
        self._salt = salt

    def __call__(self, kind: str, value: str) -> str:
        """Return the surrogate of an identifier; of a date, the placeholder."""
        value = plain(value)
        if kind in _BEGINNINGS:
            return self._refilled(kind, value)
        if kind == "NAME":
            return self._name(value)
        key = "".join(value.lower().split())
        token, number = self._digest(kind, key).hex()[:10], 1 + self._number(kind, key) % 9999
        chinese = _HAN.search(value) is not None
        if kind == "BIRTH_DATE":
            return self._birth_date(value)
        if kind == "ADDRESS":
            return f"某省某市某区某路{number}号" if chinese else f"{number} Example Street"
        if kind == "BED":
            return f"{number % 60 + 1}床" if chinese else f"Bed {number % 60 + 1}"
        if kind == "URL":
            return f"https://example.invalid/{token}"
        return f"u{token}@example.invalid" if kind == "EMAIL" else placeholder(kind, chinese=chinese)

    def _digest(self, kind: str, key: str) -> bytes:
        return hmac.digest(self._salt, f"{kind}\n{key}".encode(), hashlib.sha256)

    def _number(self, kind: str, key: str) -> int:
        return int.from_bytes(self._digest(kind, key))

    def _pick(self, kind: str, key: str, options: Sequence[str], avoid: str = "") -> str:
        number = self._number(kind, key)
        picked = options[number % len(options)]
        return options[(number + 1) % len(options)] if picked == avoid else picked

    def _refilled(self, kind: str, value: str) -> str:
        """Replace each digit and letter in its place; no real number begins as the result does."""
        country = _COUNTRY.match(value) if kind in ("PHONE", "LANDLINE") else None
        head, rest = (country[0], value[country.end() :]) if country else ("", value)
        numerals = kind == "PHONE" and not any(char.isdigit() for char in rest)
        if numerals:
            rest = rest.translate(_TO_DIGITS)
        key = "".join(char.lower() for char in rest if char.isalnum())
        if kind == "PLATE":
            head, rest = self._pick(kind, key, _PROVINCES, rest[0]), rest[1:]
        beginning = iter("1" if kind == "LANDLINE" and key[0] != "0" else _BEGINNINGS[kind])
        noise = self._number(kind, key) << 256 | self._number(f"{kind} more", key)
        parts = []
        for char in rest:
            if char.isascii() and char.isalnum():
                options = "0123456789" if char.isdigit() else _LETTERS
                noise, place = divmod(noise, len(options))
                new = next(beginning, options[place])
                char = new.lower() if char.islower() else new
            parts.append(char)
        refilled = "".join(parts)
        return head + (refilled.translate(_TO_NUMERALS) if numerals else refilled)

    def _birth_date(self, value: str) -> str:
        """Return a date at most two years away, so that the age stays about right."""
        written = value.translate(_TO_DIGITS)
        numbers = [int(number) for number in re.findall(r"\d+", written)]
        match = re.search(r"(?:18|19|20)\d{2}|\d{2}(?=\s?年)", written)
        noise = self._digest("BIRTH_DATE", " ".join(map(str, numbers)) or value)
        year = (int(match.group()) if match else 1970) + noise[0] % 5 - 2
        month, day = 1 + noise[1] % 12, 1 + noise[2] % 28
        return f"{year}年{month}月{day}日" if _HAN.search(value) else f"{year}-{month:02d}-{day:02d}"

    def _name(self, value: str) -> str:
        """Return other words for words, and other characters for characters; a family keeps its name."""
        if re.search("[A-Za-z]", value):
            return re.sub("[A-Za-z][A-Za-z'’-]*", self._word, value)
        name = "".join(_HAN.findall(value))
        given = iter([self._pick("NAME", f"{name} {place}", _GIVEN, char) for place, char in enumerate(name)])
        if re.search("[·•・．‧]", value):
            return _HAN.sub(lambda _: next(given), value)
        first = 2 if name[:2] in COMPOUND else 1
        surnames = sorted(COMPOUND) if first == 2 else _SURNAMES
        surname = self._pick("surname", name[:first], surnames, avoid=name[:first])
        return surname + "".join(list(given)[first:])

    def _word(self, word: re.Match[str]) -> str:
        return self._pick("NAME", word[0].lower(), _LATIN if len(word[0]) > 1 else _LETTERS, word[0])


def salt_for(out: Path) -> bytes:
    """Return the secret of a build, from `surrogates.salt` beside its folders; created if it is missing.

    Args:
        out: Output folder of the step.

    Raises:
        MarError: The file is too short.
    """
    path = out.parent / "surrogates.salt"
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{path}.lock"):
        if not path.exists():
            write_text(path, secrets.token_hex(32) + "\n", private=True)
        salt = path.read_bytes().strip()
    if len(salt) < _MIN_SALT:
        raise MarError(
            f"{path} holds {len(salt)} bytes; a secret has at least {_MIN_SALT}. Delete it for a new one."
        )
    return salt
