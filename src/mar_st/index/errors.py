"""Errors of index and search, and the import of their optional packages."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from mar_st.errors import MarError

#: Packages that are imported when they are first needed, and the extra that installs them.
_EXTRAS = {"faiss": "index", "pyarrow": "index", "pymilvus": "scale", "milvus_lite": "scale"}


class IndexingError(MarError):
    """An index that cannot be built, opened, changed or searched as asked; the message says what to do."""


class FilterError(IndexingError):
    """A filter that does not fit; the message says what was expected."""


def need(package: str) -> Any:
    """Import an optional package.

    Raises:
        IndexingError: The package is not installed; the message holds the pip command.
    """
    try:
        return import_module(package)
    except ImportError as error:
        extra = _EXTRAS[package.partition(".")[0]]
        raise IndexingError(
            f"This needs the package {package} ({error}). Install it: pip install 'medteb[{extra}]'"
        ) from error
