"""The documents of a folder of vectors, read from a corpus in the order of the vectors."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from mar_st.encode import read_corpus
from mar_st.index.documents import Stored
from mar_st.index.errors import IndexingError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mar_st.encode import VectorFolder

__all__ = ["documents_of", "encoded_corpus", "joined"]


def documents_of(folder: VectorFolder, corpus: str | Path | None) -> Iterator[Stored]:
    """Return the documents of a folder of vectors, in its order; without a corpus, only ids.

    Raises:
        IndexingError: Ids repeat, or corpus and vectors do not belong together.
    """
    if pc.count_distinct(folder.ids).as_py() < len(folder):
        raise IndexingError(f"Ids repeat in {folder.path}; every document needs an id of its own.")
    if corpus is not None:
        return joined(folder, corpus)
    return (Stored(name, "", "", {}) for chunk in folder.ids.chunks for name in chunk.to_pylist())


def joined(folder: VectorFolder, corpus: str | Path) -> Iterator[Stored]:
    """Yield the documents of a corpus in the order of their vectors; a corpus in the same order is streamed.

    Raises:
        IndexingError: Corpus and vectors do not belong together.
    """
    wanted = set(folder.ids.to_pylist())
    waiting: dict[str, Stored] = {}
    entries = iter(read_corpus(corpus))
    order = (str(name) for chunk in folder.ids.chunks for name in chunk.to_pylist())
    digests = (digest for chunk in folder.text_digests.chunks for digest in chunk.to_pylist())
    for name, digest in zip(order, digests, strict=True):
        while name not in waiting:
            entry = next(entries, None)
            if entry is None:
                raise IndexingError(
                    f"{corpus} has no document {name!r}, but {folder.path} has its vector. Give the corpus "
                    "that was encoded."
                )
            if entry.id not in wanted:
                raise IndexingError(
                    f"{corpus}: document {entry.id!r} occurs twice, or has no vector in {folder.path}. Give "
                    "the corpus that was encoded, or encode it again."
                )
            wanted.discard(entry.id)
            waiting[entry.id] = Stored(*entry)
        document = waiting.pop(name)
        _check_text(document, digest, folder, corpus)
        yield document
    if next(entries, None) is not None:
        raise IndexingError(f"{corpus} has more documents than {folder.path} has vectors. Encode it again.")


def _check_text(document: Stored, digest: bytes, folder: VectorFolder, corpus: str | Path) -> None:
    """Refuse a document that is not the one that was encoded."""
    text = f"{document.title}\n{document.text}" if document.title else document.text
    if any(digest) and hashlib.sha256(text.encode()).digest()[: len(digest)] != digest:
        raise IndexingError(
            f"The text of document {document.id!r} in {corpus} is not the one that was encoded into "
            f"{folder.path}. Encode the corpus again."
        )


def encoded_corpus(folder: VectorFolder) -> str | None:
    """Return the corpus that was encoded, if it is still where it was.

    Raises:
        IndexingError: The manifest of the vectors is damaged.
    """
    corpus = folder.manifest.get("corpus") or {}
    path = corpus.get("path") if isinstance(corpus, dict) else corpus
    if not isinstance(corpus, dict) or not isinstance(path, str | None):
        raise IndexingError(
            f"The manifest of {folder.path} should name the path of the corpus; it has {repr(path)[:40]}. "
            "Give the corpus, or encode it again."
        )
    return path if path and os.path.exists(path) else None  # noqa: PTH110 -- False for an impossible path
