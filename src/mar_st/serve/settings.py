"""Settings of the server, and its API keys."""

from __future__ import annotations

import hashlib
import ipaddress
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from mar_st.errors import MarError
from mar_st.files import regular
from mar_st.options import Argument, Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Environment variable with keys, separated by commas or white space.
API_KEYS_VARIABLE = "MAR_API_KEYS"

#: Minimum characters of a key; shorter ones could be guessed.
MIN_KEY_LENGTH = 16


class ServeSettings(Settings):
    """Address, models and limits of the server."""

    index: Annotated[str | None, Argument()] = Field(
        None,
        description="Index built by `mar index build`: a folder, a link to one, or a URI; default: the "
        "sample that comes with mar-zh.",
    )
    encoder: str | None = Field(
        None,
        description="Query encoder: exported folder, MAR, Hub name or mar-mini; without one, requests must "
        "contain vectors.",
    )
    query_encoder: str | None = Field(
        None,
        description="Name of the query encoder in a model with several, e.g. query-lookup; without "
        "--encoder, in the model that encoded the documents.",
    )
    reranker: str | None = Field(None, description="CrossEncoder that reranks hits on request.")
    name: str | None = Field(
        None, description="Name of the model in the API; default: the name of the encoder's folder."
    )
    host: str = Field(
        "127.0.0.1", description="Address to listen on; any address but loopback needs API keys."
    )
    port: int = Field(8000, ge=0, le=65_535, description="Port to listen on; 0 chooses a free one.")
    api_keys: Path | None = Field(
        None,
        description="File of API keys, one per line, with mode 600; a reload reads it again. Default: "
        f"${API_KEYS_VARIABLE}.",
    )
    timeout: float = Field(
        10.0, gt=0, allow_inf_nan=False, description="Seconds within which a request must be answered."
    )
    log_queries: bool = Field(False, description="Write the texts of queries to the log.")
    title: str | None = Field(None, description="Title of the search page.")
    cors: list[str] = Field(
        [],
        description="Website whose pages may call the server, e.g. https://example.org; may be repeated.",
    )


class Keys:
    """The API keys of callers; false if none is required.

    Args:
        path: File of keys, one per line (`#` starts a comment); without it, they are those of
            `$MAR_API_KEYS`.

    Raises:
        MarError: The file is missing, readable by others or without keys, or a key is too short or holds
            characters that a header cannot hold.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._digests: frozenset[bytes] = frozenset()
        self.read()

    def __bool__(self) -> bool:
        return bool(self._digests)

    def read(self) -> None:
        """Read the keys again; on an error they stay as they are."""
        where = str(self._path or API_KEYS_VARIABLE)
        if self._path is None:
            keys = os.environ.get(API_KEYS_VARIABLE, "").replace(",", " ").split()
        else:
            try:
                mode = regular(self._path).stat().st_mode
                text = self._path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise MarError(f"The API keys in {where} cannot be read ({type(error).__name__}).") from error
            if mode & 0o077:
                raise MarError(f"{where} can be read by other users of this machine. Run chmod 600 {where}.")
            lines = [line.strip() for line in text.splitlines()]
            keys = [line for line in lines if line and not line.startswith("#")]
        if not keys and (self._path is not None or API_KEYS_VARIABLE in os.environ):
            raise MarError(f"{where} holds no key. Write a key into it, one per line.")
        for number, key in enumerate(keys, 1):
            if len(key) < MIN_KEY_LENGTH or not key.isascii() or not key.isprintable() or " " in key:
                raise MarError(
                    f"Key {number} of {where} is not usable: a key has at least {MIN_KEY_LENGTH} printable "
                    "ASCII characters without spaces. Make one: "
                    'python -c "import secrets; print(secrets.token_urlsafe(32))"'
                )
        self._digests = frozenset(hashlib.sha256(key.encode()).digest() for key in keys)

    def admit(self, headers: Mapping[bytes, bytes]) -> bool:
        """Return True if headers hold a known key (`Authorization: Bearer KEY` or `X-API-Key: KEY`).

        Digests are compared, so the time reveals nothing about a key.
        """
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"bearer":
            given = headers.get(b"x-api-key", b"")
        return hashlib.sha256(given.strip()).digest() in self._digests


def allowed_hosts(settings: ServeSettings, keys: Keys) -> frozenset[str] | None:
    """Return the names that the `Host` of a request may have; `None` for any.

    Without keys a page of any website could make a browser on this machine call the server (DNS rebinding).
    With keys it cannot, so any name is allowed.

    Raises:
        MarError: Other machines can reach the server, and there are no keys.
    """
    host = settings.host.lower()
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    if keys:
        return None
    if not loopback:
        raise MarError(
            f"{host} can be reached from other machines, and there are no API keys. Give --api-keys FILE "
            f"(or {API_KEYS_VARIABLE}), or listen on 127.0.0.1."
        )
    return frozenset({"127.0.0.1", "::1", "localhost", host})
