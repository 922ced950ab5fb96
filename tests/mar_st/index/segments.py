"""Segments of eleven thousand vectors."""

from __future__ import annotations

import numpy as np

from mar_st.index.registry import kind_of
from mar_st.index.source import RowsSource
from tests.mar_st.index.conftest import clustered

COUNT, DIM = 11_000, 32


def rows_of(vectors):
    """A source of all rows of an array."""
    return RowsSource([(vectors, np.arange(len(vectors)))])


def many():
    """A source of `COUNT` vectors."""
    return rows_of(clustered(COUNT, DIM))


def built(folder, source, kind, given, like=None):
    """The index of a kind, built in a folder."""
    given = {"efConstruction": 40, **given} if kind == "hnsw" else given
    folder.mkdir(exist_ok=True)
    cls = kind_of(kind)
    cls.construct(folder, source, cls.settings(given, source.dim, len(source)), like=like, progress=False)
    return cls(folder)
