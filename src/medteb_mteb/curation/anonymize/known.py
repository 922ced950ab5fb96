"""Identifiers that are known beforehand: names of patients and staff, numbers of their records.

Rules miss names without a label or a title. With a list of the persons whom the texts may name, every mention
of them is found.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import regex

from mar_st.errors import MarError
from medteb_mteb.curation.anonymize.kinds import IDENTIFIER_KINDS, Span
from medteb_mteb.curation.texts.terms import Terms

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["Known", "merged", "read_known"]

#: Minimum letters and digits of a known identifier; a single character occurs in too many words.
MIN_LENGTH = 2

_DOTS = str.maketrans(dict.fromkeys("•・･‧∙⋅．", "·"))
_HAN = r"[\p{Han}·]"
_BLANK = r"[^\S\r\n]|[\u200b-\u200d\ufeff]"
#: Blanks to normalise in a name: none between Chinese characters, one between words.
_GAP = regex.compile(rf"(?P<none>(?<={_HAN})(?:{_BLANK})+(?={_HAN}))|[\u200b-\u200d\ufeff]+|\s{{2,}}|[^\S ]")


class Known:
    """Identifiers that are matched literally; case, width, blanks and the form of dots are ignored.

    Args:
        values: Identifiers by kind.

    Raises:
        MarError: ahocorasick_rs is not installed.
    """

    def __init__(self, values: Mapping[str, Sequence[str]]) -> None:
        self.values = {kind: tuple(sorted(set(identifiers))) for kind, identifiers in sorted(values.items())}
        self._terms = {
            kind: Terms(_even(value)[0] for value in identifiers) for kind, identifiers in self.values.items()
        }

    def __len__(self) -> int:
        return sum(map(len, self.values.values()))

    def spans(self, text: str, kinds: Sequence[str]) -> Iterator[Span]:
        """Yield the mentions of these kinds in a text, including overlapping ones."""
        even, places = _even(text)
        for kind, terms in self._terms.items():
            if kind in kinds:
                for match in terms.every(even):
                    yield Span(places[match.start], places[match.end - 1] + 1, kind)


def _even(text: str) -> tuple[str, Sequence[int]]:
    """Return a text with uniform dots and blanks, and the original position of each of its characters."""
    text = text.translate(_DOTS)
    parts: list[str] = []
    places: list[int] = []
    position = 0
    for gap in _GAP.finditer(text):
        parts.append(text[position : gap.start()])
        places.extend(range(position, gap.start()))
        if gap["none"] is None and gap.group().strip("\u200b\u200c\u200d\ufeff"):
            parts.append(" ")
            places.append(gap.start())
        position = gap.end()
    if not position:
        return text, range(len(text))
    return "".join([*parts, text[position:]]), [*places, *range(position, len(text))]


def merged(known: Known | None, values: Mapping[str, Sequence[str]]) -> Known | None:
    """Return the known identifiers together with further ones; None if there are none."""
    earlier = known.values if known is not None else {}
    kinds = {*earlier, *values}
    every = {kind: (*earlier.get(kind, ()), *values.get(kind, ())) for kind in kinds}
    return Known(every) if every else None


def read_known(path: str | Path) -> Known:
    """Return the known identifiers of a text file: one per line, a name unless a tab and a kind follow.

    Raises:
        MarError: The file cannot be read or holds no identifiers, or a line is invalid.
    """
    file = Path(path)
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise MarError(f"{file} cannot be read ({error.strerror}).") from error
    except UnicodeDecodeError as error:
        raise MarError(f"{file} is not text in UTF-8; give one identifier on each line.") from error
    values: defaultdict[str, list[str]] = defaultdict(list)
    for number, line in enumerate(lines, start=1):
        value, _, kind = (part.strip() for part in line.partition("\t"))
        if not value:
            continue
        # The line itself stays out of messages: it is private.
        if sum(char.isalnum() for char in value) < MIN_LENGTH:
            raise MarError(f"{file}, line {number}: a known identifier has {MIN_LENGTH} characters or more.")
        if (kind := kind.upper() or "NAME") not in IDENTIFIER_KINDS:
            raise MarError(
                f"{file}, line {number}: expected a kind after the tab; choose from "
                f"{', '.join(IDENTIFIER_KINDS)}."
            )
        values[kind].append(value)
    if not values:
        raise MarError(f"{file} holds no identifiers; give one on each line.")
    return Known(values)
