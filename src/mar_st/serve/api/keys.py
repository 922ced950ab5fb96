"""API keys: where they come from and how they are compared."""

from __future__ import annotations

import hashlib
import hmac
import os
from pathlib import Path
from typing import TYPE_CHECKING

from mar_st.serve.settings import ServeError

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Environment variable with keys, separated by commas or white space.
API_KEYS_VARIABLE = "MAR_API_KEYS"

#: Minimum characters of a key; shorter ones could be guessed.
MIN_KEY_LENGTH = 16


def read_keys(path: Path | None) -> tuple[str, ...]:
    """Return the API keys of a file (one per line, `#` starts a comment), else of `$MAR_API_KEYS`.

    Raises:
        ServeError: The file is missing, readable by others or without keys, or a key is too short or holds
            characters that a header cannot hold.
    """
    if path is None:
        keys = os.environ.get(API_KEYS_VARIABLE, "").replace(",", " ").split()
        where = API_KEYS_VARIABLE
        if API_KEYS_VARIABLE in os.environ and not keys:
            raise ServeError(f"{API_KEYS_VARIABLE} is set but holds no key. Unset it, or put a key into it.")
    else:
        where = str(path)
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
            mode = path.stat().st_mode
        except (OSError, UnicodeDecodeError) as error:
            raise ServeError(f"The API keys in {path} cannot be read ({type(error).__name__}).") from error
        if mode & 0o077:
            raise ServeError(f"{path} can be read by other users of this machine. Run chmod 600 {path}.")
        keys = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
        if not keys:
            raise ServeError(f"{path} holds no key. Write one key per line.")
    for number, key in enumerate(keys, 1):
        if len(key) < MIN_KEY_LENGTH or not key.isascii() or not key.isprintable() or " " in key:
            raise ServeError(
                f"Key {number} of {where} is not usable: a key has at least {MIN_KEY_LENGTH} printable ASCII "
                "characters without spaces. Make one: "
                'python -c "import secrets; print(secrets.token_urlsafe(32))"'
            )
    return tuple(keys)


class KeyRing:
    """Checks keys in a time that does not depend on how much of a key is right.

    Every key is compared, by digests of equal length, so that the time reveals neither the length of a key
    nor its position in the list.

    Args:
        keys: The keys, or the file that lists them, see `read_keys`.

    Raises:
        ServeError: The file cannot be used.
    """

    def __init__(self, keys: Iterable[str] | Path) -> None:
        self._file = keys if isinstance(keys, Path) else None
        self._digests = _digests(keys)

    def __bool__(self) -> bool:
        return bool(self._digests)

    def reread(self) -> None:
        """Read the file again; keys that were not read from a file stay as they are.

        Raises:
            ServeError: The file cannot be used; the keys stay as they are.
        """
        if self._file is not None:
            self._digests = _digests(self._file)

    def admits(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """Return True if the headers hold a known key (`Authorization: Bearer KEY` or `X-API-Key: KEY`)."""
        given = b""
        for name, value in headers:
            if name == b"authorization" and value[:7].lower() == b"bearer ":
                given = value[7:].strip()
            elif name == b"x-api-key":
                given = value.strip()
        digest = _digest(given)
        admitted = False
        for known in self._digests:  # no early exit, so that the time reveals nothing
            admitted |= hmac.compare_digest(digest, known)
        return admitted


def _digests(keys: Iterable[str] | Path) -> list[bytes]:
    return [_digest(key.encode()) for key in (read_keys(keys) if isinstance(keys, Path) else keys)]


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
