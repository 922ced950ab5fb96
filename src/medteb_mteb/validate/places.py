"""Places of passages in their prompts, as written by `medteb judge`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.judge import JUDGEMENTS_FILE, PLACES_FILE

if TYPE_CHECKING:
    from collections.abc import Container
    from pathlib import Path

__all__ = ["Places", "read_places"]

#: Judge, query and document -> place in the prompt from 0 (first) to 1 (last).
Places = dict[tuple[str, str, str], float]


def read_places(judgements: Path, queries: Container[str]) -> Places | None:
    """Return the places stored beside some judgements, for prompts with several passages.

    Args:
        judgements: Folder of `medteb judge`, or its `judgements.jsonl`.
        queries: Ids of the queries; others are ignored.

    Returns:
        The places; None if none were written.

    Raises:
        BuildError: A row is unusable; its line is named.
    """
    if judgements.is_dir():
        file = judgements / PLACES_FILE
    elif judgements.name == JUDGEMENTS_FILE:
        file = judgements.with_name(PLACES_FILE)
    else:
        return None
    if not file.is_file():
        return None
    places: Places = {}
    with file.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            try:
                row = json.loads(line)
                key = (row["judge"], row["query-id"], row["corpus-id"])
                place, shown = row["place"], row["of"]
                usable = all(isinstance(part, str) for part in key) and type(place) is type(shown) is int
                usable = usable and 1 <= place <= shown
            except (ValueError, KeyError, TypeError, RecursionError):
                usable = False
            if not usable:
                raise BuildError(
                    f"{file}:{number}: expected query-id, corpus-id, judge, and a place from 1 to 'of'. Run "
                    "medteb judge again; it writes the file from the journal."
                )
            if shown > 1 and key[1] in queries:
                places[key] = (place - 1) / (shown - 1)
    return places
