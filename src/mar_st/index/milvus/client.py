"""Connections to Milvus."""

from __future__ import annotations

import logging
import os
import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mar_st.index.base import MILVUS_PREFIX
from mar_st.index.errors import IndexingError, need

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Name of the collection if the address names none.
DEFAULT_COLLECTION = "documents"

#: Environment variable with the credentials for a server: `USER:PASSWORD`, or an API key.
TOKEN_VARIABLE = "MILVUS_TOKEN"  # noqa: S105 -- its name

_ADDRESS = re.compile(r"(?P<uri>https?://[^/]+|.*\.db)(?:/(?P<collection>\w+))?")

#: Version of a server; that of Milvus Lite has another form.
_VERSION = re.compile(r"v?(\d+)\.(\d+)")


def parse_address(target: str) -> tuple[str, str]:
    """Return the address that pymilvus takes, and the name of the collection.

    Args:
        target: `milvus:PATH.db` or `milvus:http://HOST:PORT`, optionally with `/COLLECTION`.

    Raises:
        IndexingError: The address is neither.
    """
    match = _ADDRESS.fullmatch(target.removeprefix(MILVUS_PREFIX))
    if not match:
        raise IndexingError(f"{target!r} is not an address: write milvus:PATH.db or milvus:http://HOST:PORT.")
    return match["uri"], match["collection"] or DEFAULT_COLLECTION


def connect(uri: str) -> Any:
    """Return a `pymilvus.MilvusClient`; for Milvus Lite, a missing file is created.

    Raises:
        IndexingError: No server answers, a package is missing, or the server refuses the token.
    """
    pymilvus = need("pymilvus")
    # It also logs, with a traceback, what it raises.
    logging.getLogger("pymilvus.decorators").setLevel(logging.CRITICAL)
    token = os.environ.get(TOKEN_VARIABLE, "")
    if is_lite(uri):
        need("milvus_lite")
        token = ""
        Path(uri).absolute().parent.mkdir(parents=True, exist_ok=True)
    try:
        return pymilvus.MilvusClient(uri, token=token)
    except pymilvus.MilvusException as error:
        key = (
            f" If the server needs a login, set {TOKEN_VARIABLE} to USER:PASSWORD."
            if not is_lite(uri)
            else ""
        )
        raise IndexingError(
            f"Milvus at {uri} cannot be opened ({_reason(error)}). Check that it runs and that no other "
            f"process has opened it.{key}"
        ) from error


@contextmanager
def failures_of(name: str) -> Iterator[None]:
    """Report in one line what Milvus refused.

    Raises:
        IndexingError: Milvus refused a call, or no longer answers.
    """
    pymilvus = need("pymilvus")
    try:
        yield
    except pymilvus.MilvusException as error:
        raise IndexingError(f"Milvus ({name}) answered: {_reason(error)}") from error


def is_lite(target: str) -> bool:
    """Return True if an address is a file of Milvus Lite."""
    return not target.removeprefix(MILVUS_PREFIX).startswith("http")


def is_newer(client: Any) -> bool:
    """Return True from Milvus 2.5 on, where fields are nullable and filters may be templates."""
    match = _VERSION.match(str(client.get_server_version()))
    return not match or (int(match[1]), int(match[2])) >= (2, 5)


def _reason(error: Exception) -> str:
    return " ".join(str(getattr(error, "message", "") or error).split())[:300]
