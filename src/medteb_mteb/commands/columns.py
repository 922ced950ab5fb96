"""The option that says which column a field of a text is read from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from medteb_mteb.commands.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["ColumnOption", "parse_columns"]

ColumnOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Column of a field (id, text, title) as FIELD=COLUMN, e.g. text=question; may be repeated."
    ),
]


def parse_columns(given: Iterable[str] | None) -> dict[str, str]:
    """Return the mapping given by `FIELD=COLUMN` options.

    Raises:
        UserError: An option is not `FIELD=COLUMN`.
    """
    columns = {}
    for entry in given or ():
        field, mark, name = entry.partition("=")
        if not (field and mark and name):
            raise UserError(f"--column takes FIELD=COLUMN, for instance text=question; got {entry!r}")
        columns[field] = name
    return columns
