"""Surrogates that keep the form of an identifier, consistent and irreversible.

The surrogate of an identifier is derived from a secret (HMAC-SHA256). If the form allows it, a surrogate is
an identifier that cannot exist: an identity card without a valid province and check digit, a phone number in
an unassigned range.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import re
import secrets
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock

from mar_st.errors import MarError
from mar_st.files import write_text
from medteb_mteb.curation.anonymize.checks import digits_of, id_card_digit, luhn_digit, plain
from medteb_mteb.curation.anonymize.kinds import placeholder
from medteb_mteb.curation.anonymize.words import words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Surrogates", "salt_for"]

#: Fewest bytes of a secret.
_MIN_SALT = 16

_PROVINCES = "京津沪渝冀豫云辽黑湘皖鲁新苏浙赣鄂桂甘晋蒙陕吉闽贵粤青藏川宁琼"
_NUMERALS = "零一二三四五六七八九"


class Surrogates:
    """Surrogates of identifiers.

    Args:
        salt: The secret, at least 16 bytes; anyone who has it can test guesses.
    """

    def __init__(self, salt: bytes) -> None:
        self._salt = salt
        self._surnames = "".join(words("surrogate-surnames"))
        self._given = "".join(words("surrogate-given"))
        self._make: dict[str, Callable[[str], str]] = {
            "URL": lambda value: f"https://example.invalid/{self._digest('URL', value).hex()[:10]}",
            "EMAIL": lambda value: f"u{self._digest('EMAIL', value.lower()).hex()[:8]}@example.invalid",
            "ID_CARD": self._id_card,
            "PHONE": self._phone,
            "SSN": lambda value: self._refilled("SSN", value, "000"),
            "PASSPORT": lambda value: self._refilled("PASSPORT", value, "", letters="X"),
            "RECORD_NUMBER": lambda value: self._refilled("RECORD_NUMBER", value, ""),
            "BANK_CARD": self._bank_card,
            "LANDLINE": self._landline,
            "ACCOUNT": lambda value: self._refilled("ACCOUNT", value, "0"),
            "PLATE": self._plate,
            "BIRTH_DATE": self._birth_date,
            "BED": self._bed,
            "ADDRESS": self._address,
            "NAME": self._name,
            "DATE": self._date,
        }

    def __call__(self, kind: str, value: str) -> str:
        """Return the surrogate of an identifier."""
        return self._make[kind](plain(value))

    def _digest(self, kind: str, key: str) -> bytes:
        return hmac.digest(self._salt, f"{kind}\n{key}".encode(), hashlib.sha256)

    def _digits(self, kind: str, key: str, count: int) -> str:
        return str(int.from_bytes(self._digest(kind, key) + self._digest(kind, f"{key}\n"))).zfill(160)[
            -count:
        ]

    def _pick(self, kind: str, key: str, options: Sequence[str], avoid: str = "") -> str:
        number = int.from_bytes(self._digest(kind, key)[:8])
        picked = options[number % len(options)]
        return options[(number + 1) % len(options)] if picked == avoid else picked

    def _refilled(self, kind: str, value: str, beginning: str, *, letters: str = "", key: str = "") -> str:
        """Replace each digit and letter in its place; `beginning` fills the first places."""
        key = key or "".join(char.lower() for char in value if char.isalnum())
        digits = iter(self._digits(kind, key, sum(char.isalnum() for char in value)))
        alphabet = iter(self._digest(f"{kind} letters", key) * (1 + len(value) // 32))
        first = iter(beginning)
        parts = []
        for char in value:
            if not (char.isdigit() or (char.isascii() and char.isalpha())):
                parts.append(char)
            elif (start := next(first, "")) != "":
                parts.append(start)
                next(digits)
            elif char.isdigit():
                parts.append(next(digits))
            else:
                letter = letters or "ABCDEFGHJKLMNPQRSTUVWXYZ"[next(alphabet) % 24]
                parts.append(letter if char.isupper() else letter.lower())
        return "".join(parts)

    def _id_card(self, value: str) -> str:
        number = "".join(char for char in value if char.isalnum())
        digits = "00" + self._digits("ID_CARD", number.upper(), len(number) - 2)
        if len(number) == 18:
            right = "0123456789X".index(id_card_digit(digits[:17]))
            digits = digits[:17] + str((right + 1) % 10)
        fresh = iter(digits)
        return "".join(next(fresh) if char.isalnum() else char for char in value)

    def _bank_card(self, value: str) -> str:
        number = digits_of(value)
        digits = "0" + self._digits("BANK_CARD", number, len(number) - 2)
        digits += str((int(luhn_digit(digits)) + 1) % 10)
        fresh = iter(digits)
        return "".join(next(fresh) if char.isdigit() else char for char in value)

    def _phone(self, value: str) -> str:
        if not any(char.isdigit() for char in value):
            key = value.replace("幺", "一").replace("〇", "零")
            digits = "10" + self._digits("PHONE", key, len(value) - 2)
            return "".join(_NUMERALS[int(digit)] for digit in digits)
        country = re.match(r"[+＋]?(?:00)?86[-\s]?(?=\D*1[3-9])|(?:\+|00)\d{1,3}(?=[-\s.(])", value)
        prefix = country.group() if country else ""
        number = value[len(prefix) :]
        return prefix + self._refilled("PHONE", number, "10", key=digits_of(number))

    def _landline(self, value: str) -> str:
        country = re.match(r"(?:\+|00)86[-\s]?", value)
        prefix = country.group() if country else ""
        number = value[len(prefix) :]
        beginning = "019" if digits_of(number).startswith("0") else "1"
        return prefix + self._refilled("LANDLINE", number, beginning, key=digits_of(number))

    def _plate(self, value: str) -> str:
        key = "".join(char for char in value if char.isalnum())
        return self._pick("PLATE", key, _PROVINCES) + self._refilled("PLATE", value[1:], "I", key=key)

    def _birth_date(self, value: str) -> str:
        """Return a date at most two years away, so that the age stays about right."""
        written = "".join(
            str("〇一二三四五六七八九".index(char)) if char in "〇一二三四五六七八九" else char
            for char in value.replace("零", "〇").replace("○", "〇")
        )
        match = re.search(r"(?:18|19|20)\d{2}|\d{2}(?=\s?年)", written)
        noise = self._digest("BIRTH_DATE", " ".join(map(str, map(int, re.findall(r"\d+", written)))) or value)
        year = (int(match.group()) if match else 1970) + noise[0] % 5 - 2
        month, day = 1 + noise[1] % 12, 1 + noise[2] % 28
        if re.search("[\u4e00-\u9fff]", value):
            return f"{year}年{month}月" + (f"{day}日" if re.search("[日号初]", value) else "")
        return f"{year}-{month:02d}" + (f"-{day:02d}" if len(digits_of(value)) > 6 or " " in value else "")

    def _date(self, value: str) -> str:
        """Return the date moved by the same number of days as every date of the build; intervals are kept."""
        numbers = re.findall(r"\d+", value)
        if len(numbers) == 1 and len(numbers[0]) == 8:
            numbers = [numbers[0][:4], numbers[0][4:6], numbers[0][6:]]
        year, month, day = map(int, ["2001", *numbers] if len(numbers) == 2 else (numbers + ["0"] * 3)[:3])
        try:
            date = dt.date(year, month, day)
        except ValueError:  # in words, or in another order
            return placeholder("DATE", chinese=re.search("[\u4e00-\u9fff]", value) is not None)
        moved = date + dt.timedelta(days=1 + int(self._digits("DATE", "days", 3)) % 364)
        fresh = iter((f"{moved.month}", f"{moved.day}"))
        if len(numbers) > 2:
            fresh = iter((f"{moved.year}", f"{moved.month}", f"{moved.day}"))
        if re.fullmatch(r"\d{8}", value):
            return moved.strftime("%Y%m%d")
        return re.sub(
            r"\d+", lambda one: next(fresh).zfill(len(one.group()) if one.group()[0] == "0" else 1), value
        )

    def _bed(self, value: str) -> str:
        number = str(1 + int(self._digits("BED", value, 3)) % 60)
        if value.endswith("床"):
            hospital = "某医院" if "院" in value else ""
            return f"{hospital}{'某科' if re.search('[^加临号床0-9A-Z+-]', value) else ''}{number}床"
        return number if len(value) <= 4 else f"Ward 0, Bed {number}"

    def _address(self, value: str) -> str:
        number = 1 + int(self._digits("ADDRESS", "".join(value.split()), 4))
        chinese = re.search("[\u4e00-\u9fff]", value)
        return f"某省某市某区某路{number}号" if chinese else f"{number} Example Street"

    @cached_property
    def _next_surname(self) -> dict[str, str]:
        """Return each surname's successor in a secret order: all differ, and none is its own successor."""
        cycles: dict[str, str] = {}
        for names in (list(self._surnames), sorted(words("compound"))):
            order = sorted(names, key=lambda name: self._digest("surname", name))
            cycles.update(zip(order, [*order[1:], order[0]], strict=True))
        return cycles

    def _name(self, value: str) -> str:
        if re.search("[A-Za-z]", value):
            return re.sub(r"[A-Za-z][A-Za-z'’-]*", self._latin_word(value.split()[-1]), value)
        if re.search("[·•・．‧]", value):
            plain = "".join(re.findall("[\u4e00-\u9fff]", value))
            fresh = iter(self._pick("NAME", f"{plain} {place}", self._given) for place in range(len(plain)))
            return re.sub("[\u4e00-\u9fff]", lambda _: next(fresh), value)
        plain = "".join(value.split())
        surname = plain[:2] if plain[:2] in words("compound") else plain[:1]
        new_surname = self._next_surname.get(surname) or self._pick("surname", surname, self._surnames)
        given = plain[len(surname) :]
        return new_surname + "".join(
            self._pick("NAME", f"{plain} {place}", self._given, avoid=char)
            for place, char in enumerate(given)
        )

    def _latin_word(self, last: str) -> Callable[[re.Match[str]], str]:
        """Return a family name for the last word, a first name for others, an initial for an initial."""

        def stand_in(word: re.Match[str]) -> str:
            name = word.group()
            if len(name) == 1:
                return self._pick("NAME", name, "ABCDEFGHJKLMNPRSTW", avoid=name)
            names = (
                words("surrogate-last-names") if name == last.rstrip(".,") else words("surrogate-first-names")
            )
            return self._pick("NAME", name.lower(), names, avoid=name)

        return stand_in


def salt_for(out: str | Path, file: str | Path | None = None) -> bytes:
    """Return the secret of a build, from its file; the file is created if it is missing.

    Args:
        out: Output folder of the step.
        file: File of the secret; default `OUT.salt`, next to the folder and readable only by its owner.

    Raises:
        MarError: The file is inside the output and would be published with it, or is too short.
    """
    path = Path(file) if file else Path(f"{Path(out).resolve()}.salt")
    if path.resolve().is_relative_to(Path(out).resolve()):
        raise MarError(f"{path} is inside the output and would be published with it; keep it elsewhere.")
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
