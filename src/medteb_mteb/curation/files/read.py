"""Reading texts: queries or documents of files, of a step's folder, or of a data set of the Hub."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mar_st.data.rows import read_rows
from mar_st.errors import MarError
from mar_st.text.values import as_date, as_id, as_text, writable
from medteb_mteb.curation.files.records import Text
from medteb_mteb.curation.lineage import lineage

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator, Mapping, Sequence

    from mar_st.data.rows import Row

logger = logging.getLogger(__name__)

#: Why an exact copy of a text without an id is dropped.
REPEATED_TEXT = "repeated"
#: Keys of each field of a text, unless `columns` names one.
FIELD_KEYS: dict[str, tuple[str, ...]] = {
    "id": ("_id", "id", "docid", "query-id"),
    "text": ("text", "content", "body", "query", "question"),
    "title": ("title",),
    "date": ("date",),
}


def read_texts(
    source: str | Path, columns: Mapping[str, str] | None = None, *, dropped: Counter[str] | None = None
) -> Iterator[Text]:
    """Yield the texts of a source, streamed in the order of the files' names and rows.

    A text without an id gets the digest of its content as id, so an exact copy of an earlier one is dropped.
    A list `replies` is kept, see `Text`. Other columns are left out.

    Args:
        source: Anything that `mar_st.data.rows.read_rows` reads, or a folder that a step wrote.
        columns: Columns by field (`id`, `text`, `title`, `date`); default: the first column of
            `FIELD_KEYS` that exists.
        dropped: Receives the number of dropped copies as `repeated`; without it a warning is logged.

    Raises:
        MarError: The source does not exist, or rows are unusable.
    """
    given = dict(columns or {})
    if unknown := sorted(given.keys() - FIELD_KEYS):
        raise MarError(f"{unknown[0]!r} is not a field of a text; choose from {', '.join(FIELD_KEYS)}.")
    # Texts count as anonymised only if a step wrote that, not because of a column of that name.
    built = Path(source).is_dir() and bool(lineage(source))
    seen: set[str] = set()

    def text_of(row: Row) -> Text | None:
        text, own = _text(row, given, built=built)
        if text.id in seen and own:
            raise MarError(f"the id {text.id!r} is taken by an earlier row.")
        new = text.id not in seen
        seen.add(text.id)
        return text if new else None

    copies = 0
    for text in read_rows(source, text_of, table="records-*" if built else ""):
        if text is None:
            copies += 1
        else:
            yield text
    if not seen and not built:
        raise MarError(f"{source} holds no rows.")
    if copies and dropped is not None:
        dropped[REPEATED_TEXT] += copies
    elif copies:
        logger.warning("%s: %d rows without an id repeat an earlier text and are dropped", source, copies)


def _text(row: Row, columns: Mapping[str, str], *, built: bool) -> tuple[Text, bool]:
    """Return the text of a row, and whether its id is its own and not the digest of its content."""
    values = row.values
    named = {
        field: columns.get(field) or next((name for name in known if name in values), None)
        for field, known in FIELD_KEYS.items()
    }
    if named["text"] not in values:
        wanted = named["text"] or " or ".join(FIELD_KEYS["text"])
        raise MarError(f"expected a column {wanted}; the columns are {', '.join(map(str, values))}.")
    text = as_text(values[named["text"]])
    if text is None:
        raise MarError(f"{named['text']!r} is empty or not text.")
    title = values.get(named["title"] or "") or ""
    if not isinstance(title, str) or writable(title) != title:
        raise MarError(f"{named['title']!r} is not text.")
    date = values.get(named["date"] or "") or ""
    if date and as_date(date) is None:
        raise MarError(
            f"{named['date']!r} is {str(date)[:30]!r}; expected a date like 2026-10-05 or 2026-10."
        )
    identity = as_id(values[named["id"]]) if named["id"] in values else None
    if named["id"] in values and (identity is None or {"\t", "\n", "\r"} & set(identity)):
        raise MarError(f"{named['id']!r} is empty, not an id, or has a tab or a line break.")
    return (
        Text(
            identity or hashlib.sha256(f"{title}\n{text}".encode()).hexdigest()[:16],
            text,
            str(title),
            str(values.get("anonymised") or "") if built else "",
            dict(values.get("identifiers") or {}) if built else {},
            as_date(date) or "",
            _replies(values),
        ),
        identity is not None,
    )


def _replies(values: Mapping[str, Any]) -> Sequence[dict[str, Any]]:
    """Return the replies to a post; none if the column of this name is something else, such as a number."""
    if not isinstance(values.get("replies"), list):
        return ()
    replies = []
    for reply in values["replies"]:
        fields = reply if isinstance(reply, dict) else {}
        text, verified = as_text(fields.get("text")), fields.get("verified", False)
        if text is None or not isinstance(verified, bool):
            raise MarError("'replies' is not a list of objects with a text and, as true or false, verified.")
        replies.append({"text": text, "verified": verified})
    return replies
