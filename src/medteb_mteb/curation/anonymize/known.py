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
from medteb_mteb.curation.anonymize.kinds import IDENTIFIER_KINDS, Span, chosen
from medteb_mteb.curation.files.layout import guarded
from medteb_mteb.curation.files.read import read_texts
from medteb_mteb.curation.texts.terms import Terms

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["COLUMNS", "Known", "merged", "read_known", "read_sheet", "write_sheet"]

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
        lines = regular(file).read_text(encoding="utf-8-sig").splitlines()
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


#: Columns of a sheet; the first is filled in by a person.
COLUMNS = ("identifier", "kind", "value", "count", "example")
_YES, _NO = frozenset({"yes", "y", "1", "是", "true"}), frozenset({"no", "n", "0", "否", "false"})
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
    kinds = chosen(None)  # without DATE
    usual, strict = Finder(kinds, known), Finder(kinds, known, strict=True)
    counts: Counter[tuple[str, str]] = Counter()
    examples: dict[tuple[str, str], str] = {}
    for text in tqdm(read_texts(source, columns), "looking", unit=" texts", disable=None):
        fields = [text.title, text.text]
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


def read_sheet(path: str | Path) -> tuple[dict[str, list[str]], frozenset[tuple[str, str]]]:
    """Return the answers of a sheet whose first column says yes or no; rows may have no answer.

    Returns:
        Values that are identifiers, by kind; kinds and values that are not.

    Raises:
        MarError: The file cannot be read or is not such a sheet, or a row is invalid.
    """
    file = Path(path)
    try:
        rows = list(csv.reader(io.StringIO(regular(file).read_text(encoding="utf-8-sig"), newline="")))
    except OSError as error:
        raise MarError(f"{file} cannot be read ({error.strerror}).") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise MarError(f"{file} is not a CSV file in UTF-8; save the sheet as 'CSV UTF-8'.") from error
    if not rows or tuple(cell.strip() for cell in rows[0][: len(COLUMNS)]) != COLUMNS:
        raise MarError(f"{file} is not a sheet of --review: its columns are {', '.join(COLUMNS)}.")
    yes: dict[str, set[str]] = {}
    cleared: set[tuple[str, str]] = set()
    for number, row in enumerate(rows[1:], start=2):
        if not any(row):
            continue
        # The row itself stays out of messages: it is private.
        if len(row) < 3 or row[1] not in IDENTIFIER_KINDS:
            raise MarError(f"{file}, row {number}: expected an answer, a kind and a value.")
        answer, kind, value = row[0].strip().lower(), row[1], row[2].removeprefix("'")
        if answer in _YES:
            yes.setdefault(kind, set()).add(value)
        elif answer in _NO:
            cleared.add((kind, plain(value)))
        elif answer:
            raise MarError(f"{file}, row {number}: the answer is yes or no (是, 否), or empty.")
    return {kind: sorted(values) for kind, values in yes.items()}, frozenset(cleared)
