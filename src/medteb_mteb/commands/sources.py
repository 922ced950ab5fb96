"""The option that says where texts come from, and under which licence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from medteb_mteb.curation.files.sources import TextSource

__all__ = ["SourceOption", "parse_sources"]

SourceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--source",
        help="Source of the texts and its licence as NAME=LICENCE, e.g. huatuo=apache-2.0; may be repeated.",
    ),
]


def parse_sources(given: Iterable[str] | None) -> tuple[TextSource, ...]:
    """Return the sources of `NAME=LICENCE` options.

    Raises:
        BuildError: An option is not `NAME=LICENCE`.
    """
    from medteb_mteb.curation.files.sources import parse_source  # lazy: pydantic

    return tuple(map(parse_source, given or ()))
