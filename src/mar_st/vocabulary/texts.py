"""The texts that decide which pieces of a vocabulary are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mar_st.data import Source, Texts, Triples, locate, read_rows, read_source
from mar_st.recipes.inputs import Data

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Files of a folder in the Hub layout that hold texts.
TEXT_FILES = ("corpus.jsonl", "queries.jsonl")


def file_texts(name: str) -> Texts:
    """Read all texts of a file or folder; large files are mapped, not held in memory.

    Args:
        name: A text file (`.txt`, one text per line), a file of training data (all its texts count: queries,
            positives, negatives), or a folder with `corpus.jsonl` and `queries.jsonl`; also `package:` and
            `hub:` names.

    Raises:
        MarError: The file is missing or broken, or holds no texts.
    """
    if name.startswith("hub:"):
        return source_texts(read_source(Data(name="texts", path=name)))
    path = locate(name)
    if path.is_dir():
        files = [path / file for file in TEXT_FILES if (path / file).is_file()]
        if files:
            return Texts.joined([file_texts(str(file)) for file in files])
        return source_texts(read_source(Data(name="texts", path=name)))
    first = next((row.values for row in read_rows(path)), {})
    single = "text" in first and not {"query", "anchor", "sentence1", "premise"} & set(first)
    form = {"form": "texts", "role": "document"} if single else {}
    return source_texts(read_source(Data.model_validate({"name": "texts", "path": str(path), **form})))


def source_texts(source: Source) -> Texts:
    """Return all texts of the rows read for a data entry."""
    parts: list[Sequence[str]] = [Triples.of(source.triples).texts, source.texts]
    return Texts.joined(parts)
