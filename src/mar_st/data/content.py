"""Digests of data: of the files of a source, and of the rows read from it."""

from __future__ import annotations

import hashlib
import itertools
import json
from typing import TYPE_CHECKING, Any

from mar_st.data.records import row_line
from mar_st.data.rows import locate

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mar_st.data.records import Source, Triple
    from mar_st.recipes.inputs import VocabularyCut
    from mar_st.recipes.schema import Data

#: Settings of a data entry that decide which rows are read from its files.
CONTENT_SETTINGS = {"form", "columns", "where", "limit", "role", "instruction"}


def data_digest(data: str | Data) -> str:
    """Return the sha256 over the files of a data source, names and contents, those of sub-folders included.

    Args:
        data: Path of the source, or a data entry. The digest of an entry also covers the settings that change
            the rows read, unless they have their defaults.

    Raises:
        DataError: The source does not exist, or is a data set of the Hub, which has no local files.
    """
    path = locate(data if isinstance(data, str) else data.path)
    folder = path.parent if path.is_file() else path
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.relative_to(folder).as_posix()}\0".encode())
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    if not isinstance(data, str):
        settings = data.model_dump(mode="json", include=CONTENT_SETTINGS, exclude_defaults=True)
        if settings:
            digest.update(json.dumps(settings, sort_keys=True, ensure_ascii=False).encode())
    return digest.hexdigest()


def source_digest(source: Source) -> str:
    """Return the sha256 of the rows of a data entry: its triples and texts."""
    if source.digest is not None:
        return source.digest
    digest = hashlib.sha256()
    rows: Iterable[Triple | str] = itertools.chain(source.triples, source.texts)
    for row in rows:
        digest.update(row_line(row))
    return digest.hexdigest()


def vocabulary_cut(cut: VocabularyCut, data: Mapping[str, str]) -> dict[str, Any]:
    """Return what decides which pieces of a vocabulary are kept.

    Args:
        cut: Vocabulary setting of a backbone.
        data: Digest of the content of every data entry, by name.
    """
    return {"keep": cut.keep, "texts": [data.get(name) or data_digest(name) for name in cut.texts]}
