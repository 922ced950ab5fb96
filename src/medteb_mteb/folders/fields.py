"""Further columns of the queries, such as their department or type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mar_st.text.values import as_id, as_text
from medteb_mteb.folders.problems import FolderError, Problems
from medteb_mteb.folders.rows import read_rows

if TYPE_CHECKING:
    from medteb_mteb.folders.layout import Layout

__all__ = ["query_field"]

#: Columns that are not fields.
_RESERVED_COLUMNS = ("_id", "id", "text", "title")


def query_field(layout: Layout, name: str) -> dict[str, str]:
    """Return the value of a field by query id, as text; queries without one are left out.

    Args:
        layout: The folder.
        name: A column of the queries, or a key of their `metadata`.

    Raises:
        FolderError: No query has the field.
    """
    known: set[str] = set()
    values: dict[str, str] = {}
    # Problems of the rows are reported when the texts are read.
    for row in read_rows(layout.tables["queries"], Problems(layout.path)):
        fields = _fields(row.values)
        known |= fields.keys()
        query = as_id(row.values.get("_id", row.values.get("id")))
        if query is not None and name in fields:
            values[query] = fields[name]
    if not values:
        there = f"the fields are {', '.join(sorted(known))}" if known else "queries have no further fields"
        raise FolderError(layout.path, [f"no query has a field {name!r}; {there}"])
    return values


def _fields(values: dict[str, Any]) -> dict[str, str]:
    """Return the fields of a row that hold one value, and not NaN or what UTF-8 cannot hold."""
    nested = values.get("metadata")
    everything = {**(nested if isinstance(nested, dict) else {}), **values}
    return {
        key: text
        for key, value in everything.items()
        if key not in _RESERVED_COLUMNS
        and isinstance(value, str | int | float)
        and value == value  # not NaN
        and (text := as_text(" ".join(str(value).split())))
    }
