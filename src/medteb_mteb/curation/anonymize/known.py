"""Identifiers that people name: lists of known ones, and a sheet of doubtful ones to be decided.

Rules miss names without a label or a title. With a list of the persons whom the texts may name, every mention
of them is found.
"""

from __future__ import annotations

import csv
import io
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import regex
from tqdm.auto import tqdm

from mar_st.errors import MarError
from mar_st.files import regular, write_text
from medteb_mteb.curation.anonymize.checks import plain
from medteb_mteb.curation.anonymize.find import Finder
from medteb_mteb.curation.anonymize.kinds import IDENTIFIER_KINDS, Span
from medteb_mteb.curation.files.layout import guarded
from medteb_mteb.curation.files.read import read_texts
from medteb_mteb.curation.texts.terms import Terms

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["COLUMNS", "Known", "read_known", "write_sheet"]

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
        self._terms = {
            kind: Terms(_even(value)[0] for value in identifiers) for kind, identifiers in values.items()
        }

    def spans(self, text: str) -> Iterator[Span]:
        """Yield the mentions in a text, including overlapping ones."""
        even, places = _even(text)
        for kind, terms in self._terms.items():
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


#: Columns of a sheet; the first is filled in by a person.
COLUMNS = ("identifier", "kind", "value", "count", "example")
_YES, _NO = frozenset({"yes", "y", "1", "是", "true"}), frozenset({"no", "n", "0", "否", "false"})


def read_known(path: str | Path) -> tuple[Known, frozenset[tuple[str, str]]]:
    """Return the identifiers of a list, or of a sheet of `write_sheet` with answers in its first column.

    A list has one identifier per line, a name unless a tab and a kind follow. Rows of a sheet may have no
    answer.

    Returns:
        The identifiers; kinds and values that are none.

    Raises:
        MarError: The file cannot be read, holds nothing, or a line is invalid.
    """
    file = Path(path)
    try:
        text = regular(file).read_text(encoding="utf-8-sig")
        is_sheet = text.startswith(f"{COLUMNS[0]},")
        rows = list(csv.reader(io.StringIO(text, newline=""))) if is_sheet else []
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise MarError(f"{file} cannot be read ({type(error).__name__}); give a file in UTF-8.") from error
    if not is_sheet:
        parts = [line.partition("\t") for line in text.splitlines()]
        rows = [["yes", kind.strip().upper() or "NAME", value.strip()] for value, _, kind in parts]
    yes: defaultdict[str, set[str]] = defaultdict(set)
    cleared: set[tuple[str, str]] = set()
    for number, row in enumerate(rows, start=1):
        if (is_sheet and number == 1) or not row or not any(row[2:]):
            continue
        # The row itself stays out of messages: it is private.
        answer, kind, value = row[0].strip().lower(), row[1], row[2].removeprefix("'")
        if kind not in IDENTIFIER_KINDS or sum(char.isalnum() for char in value) < MIN_LENGTH:
            raise MarError(
                f"{file}, line {number}: expected an identifier of {MIN_LENGTH} characters or more, and a "
                f"kind of {', '.join(IDENTIFIER_KINDS)}."
            )
        if answer in _YES:
            yes[kind].add(value)
        elif answer in _NO:
            cleared.add((kind, plain(value)))
        elif answer:
            raise MarError(f"{file}, line {number}: the answer is yes or no (是, 否), or empty.")
    if not yes and not is_sheet:
        raise MarError(f"{file} holds no identifiers; give one on each line.")
    return Known({kind: sorted(values) for kind, values in yes.items()}), frozenset(cleared)


#: Characters shown before and after a value.
_CONTEXT_LENGTH = 20


def write_sheet(
    source: str | Path,
    path: str | Path,
    *,
    known: Known | None = None,
    columns: Mapping[str, str] | None = None,
) -> None:
    """Write the values that only strict mode would replace, each once, the most frequent first.

    The sheet holds identifiers: it is readable only by its owner, and must be kept with the source.

    Args:
        source: See `read_texts`.
        path: CSV file to write; it must not exist.
        known: Known identifiers, which need no review.
        columns: See `read_texts`.

    Raises:
        MarError: The file exists or cannot be written, or the source cannot be read.
    """
    file = Path(path)
    if file.exists():
        raise MarError(f"{file} exists and may hold answers; give the name of a new file.")
    usual, strict = Finder(known), Finder(known, strict=True)
    counts: Counter[tuple[str, str]] = Counter()
    examples: dict[tuple[str, str], str] = {}
    for text in tqdm(read_texts(source, columns), "looking", unit=" texts", disable=None):
        fields = text.fields
        for field, certain, all_ in zip(fields, usual.together(fields), strict.together(fields), strict=True):
            for start, end, kind in all_:
                if any(start < span.end and span.start < end for span in certain):
                    continue
                key = (kind, field[start:end])
                counts[key] += 1
                examples.setdefault(key, _example(field, start, end))
    content = io.StringIO()
    writer = csv.writer(content)
    writer.writerow(COLUMNS)
    for (kind, value), count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        writer.writerow(["", kind, guarded(value), count, guarded(examples[kind, value])])
    write_text(file, "\ufeff" + content.getvalue(), private=True)


def _example(text: str, start: int, end: int) -> str:
    before, after = text[max(0, start - _CONTEXT_LENGTH) : start], text[end : end + _CONTEXT_LENGTH]
    shown = f"{before}【{text[start:end]}】{after}"
    return " ".join(shown.split())
