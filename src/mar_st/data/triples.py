"""Conversion of a row of a file to a triple, whichever library the file was written for.

| what | column |
|---|---|
| query | `query`, `anchor` |
| positives | `positive`, `positives`, `pos`: a text or a list; `positive_passages`: Tevatron's passages |
| hard negatives | `negative`, `negatives`, `neg`; `negative_1`, `negative_2`, ...; `negative_passages` |
| others | `instruction`, `source` |

A passage is an object with `text` and maybe `title`, which goes before it.
"""

from __future__ import annotations

import re
from typing import Any

from mar_st.data.records import DataError, Triple
from mar_st.text.texts import join_document

QUERY_COLUMNS = ("query", "anchor")
POSITIVE_COLUMNS = ("positive", "positives", "pos", "positive_passages")
NEGATIVE_COLUMNS = ("negative", "negatives", "neg", "negative_passages")

#: Columns that a triple is read from, in addition to `negative_1`, `negative_2`, ...
TRIPLE_COLUMNS = (*QUERY_COLUMNS, *POSITIVE_COLUMNS, *NEGATIVE_COLUMNS, "instruction", "source")

_NUMBERED_NEGATIVE = re.compile(r"negative_([0-9]{1,9})")

#: Columns of other libraries that change how *they* train and are not read here: the library, and what to use
#: instead.
IGNORED_COLUMNS = {
    "prompt": "FlagEmbedding's; give the data entry a prompt, or rename the column to 'instruction'",
    "type": "FlagEmbedding's",
    "pos_scores": "FlagEmbedding's teacher scores",
    "neg_scores": "FlagEmbedding's teacher scores",
    "query_instruct": "Tevatron's; rename the column to 'instruction'",
    "answers": "Tevatron's",
    "label": "scores or labels of a row's texts",
    "scores": "scores or labels of a row's texts",
}


def is_column(name: str) -> bool:
    """Return True if triples are read from a column of this name."""
    return name in TRIPLE_COLUMNS or _NUMBERED_NEGATIVE.fullmatch(name) is not None


def ignored_columns(row: dict[str, Any]) -> dict[str, str]:
    """Return the columns of a row that only other libraries read, with the library of each."""
    return {name: whose for name, whose in IGNORED_COLUMNS.items() if row.get(name) not in (None, "", [])}


def triple_of(place: str, row: dict[str, Any], template: str) -> Triple:
    """Return the triple of a row.

    Args:
        place: File and line, for messages.
        row: The columns.
        template: Template that puts an instruction before the query.

    Raises:
        DataError: The query or the positive is missing, a text is empty or null, or an instruction is not a
            text.
    """
    query = row.get("query") or row.get("anchor")
    if not isinstance(query, str) or not query.strip():
        raise _without(QUERY_COLUMNS, place, row)
    positives = _texts(place, row, POSITIVE_COLUMNS)
    if not positives:
        raise _without(POSITIVE_COLUMNS, place, row)
    negatives = _texts(place, row, NEGATIVE_COLUMNS)
    if not negatives and len(row) > 2:  # more than a pair
        negatives = _texts(place, row, _numbered(row), single=True)
    instruction = row.get("instruction") if template else None
    if instruction and not isinstance(instruction, str):  # NaN where a table had no value, for instance
        raise DataError(f"{place}: 'instruction' should be a text or null; it is {instruction!r}.")
    before = template.replace("{instruction}", instruction) if instruction else ""
    return Triple(query, positives, negatives, before, str(row.get("source") or ""))


def _without(names: tuple[str, ...], place: str, row: dict[str, Any]) -> DataError:
    """Return the error for a row without a text in any of these columns."""
    column = next((name for name in names if name in row), None)
    if column is None:
        return DataError(f"{place}: needs 'query' and 'positive' (or 'positives'); has {sorted(row)}.")
    return DataError(f"{place}: {column!r} should be a text that is not empty; it is {row[column]!r}.")


def _numbered(row: dict[str, Any]) -> list[str]:
    numbered = [(int(match[1]), name) for name in row if (match := _NUMBERED_NEGATIVE.fullmatch(name))]
    return [name for _, name in sorted(numbered)]


def _texts(
    place: str, row: dict[str, Any], names: tuple[str, ...] | list[str], *, single: bool = False
) -> tuple[str, ...]:
    """Return the texts of the first column that has any; with `single` the one text of every column."""
    collected: list[str] = []
    for name in names:
        value = row.get(name)
        if not value:
            continue
        if isinstance(value, str) and not single and not value.isspace():
            return (value,)
        values = value if isinstance(value, list | tuple) else [value]
        texts = [_text(text) for text in values]
        if not all(isinstance(text, str) and text.strip() for text in texts):
            raise DataError(f"{place}: {name!r} should hold texts that are not empty; it holds {value!r}.")
        collected += texts
        if not single:
            break
    return tuple(collected)


def _text(value: Any) -> Any:
    """Return the text of a passage; anything else unchanged."""
    if isinstance(value, dict) and isinstance(value.get("text"), str):
        return join_document({"text": value["text"], "title": value.get("title") or ""})
    return value
