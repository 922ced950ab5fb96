"""Identifiers that are known beforehand: names of patients and staff, numbers of their records.

A name without a label or a title is not found by rules. Where a hospital can write down whom its texts may
name, every mention is found.
"""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path
from typing import TYPE_CHECKING

from medteb_mteb.build.anonymize.kinds import chosen
from medteb_mteb.build.anonymize.spans import Span
from medteb_mteb.build.records import BuildError
from medteb_mteb.build.terms import Terms

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["Known", "read_known"]

#: Letters and digits of a known identifier at least; one character stands in too many words.
SHORTEST = 2


class Known:
    """Identifiers that are looked for as they are; case and width do not count.

    Args:
        values: Identifiers by kind.

    Raises:
        BuildError: ahocorasick_rs is not installed.
    """

    def __init__(self, values: Mapping[str, Sequence[str]]) -> None:
        self.values = {kind: tuple(sorted(set(found))) for kind, found in sorted(values.items())}
        self._terms = {kind: Terms(found) for kind, found in self.values.items()}

    def __len__(self) -> int:
        return sum(map(len, self.values.values()))

    def spans(self, text: str, kinds: Sequence[str]) -> Iterator[Span]:
        """Mentions of those kinds in a text."""
        for kind, terms in self._terms.items():
            if kind in kinds:
                for found in terms.find(text):
                    yield Span(found.start, found.end, kind)

    def digest(self, salt: bytes) -> str:
        """By what the list is known in the settings of a step: 16 hex digits that tell nobody."""
        content = "\n".join(f"{kind}\t{value}" for kind, found in self.values.items() for value in found)
        return hmac.digest(salt, content.encode(), hashlib.sha256).hex()[:16]


def read_known(path: str | Path) -> Known:
    """Known identifiers of a text file: one on a line, a name unless a tab and a kind follow.

    Raises:
        BuildError: The file cannot be read or holds none, or a line cannot be used.
    """
    file = Path(path)
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise BuildError(f"{file} cannot be read ({error.strerror}).") from error
    except UnicodeDecodeError as error:
        raise BuildError(f"{file} is no text in UTF-8; give one identifier on each line.") from error
    values: dict[str, list[str]] = {}
    for number, line in enumerate(lines, start=1):
        value, _, kind = (part.strip() for part in line.partition("\t"))
        if not value:
            continue
        # The line itself stays out of messages: it is private.
        if sum(char.isalnum() for char in value) < SHORTEST:
            raise BuildError(f"{file}, line {number}: a known identifier has {SHORTEST} characters or more.")
        try:
            (found,) = chosen([kind or "NAME"])
        except BuildError as error:
            raise BuildError(f"{file}, line {number}: {error}") from None
        values.setdefault(found, []).append(value)
    if not values:
        raise BuildError(f"{file} holds no identifiers; give one on each line.")
    return Known(values)
