"""Errors of index and search, and the import of their optional packages."""

from __future__ import annotations

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
        PackageError: The package is not installed; the message holds the pip command.
    """
    from mar_st.files.packages import load_package  # lazy: numpy

    return load_package(package, extra=_EXTRAS[package.partition(".")[0]])
