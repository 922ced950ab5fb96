"""The secret from which surrogates are derived: a file next to the output, never in it."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path

from medteb_mteb.curation.files.records import BuildError

__all__ = ["salt_for", "salt_id"]

_MIN_BYTES = 16


def salt_for(out: str | Path, file: str | Path | None = None) -> bytes:
    """Return the secret of a build, from its file; the file is created if it is missing.

    Args:
        out: Output folder of the step.
        file: File of the secret; default `OUT.salt`, next to the folder and readable only by its owner.

    Raises:
        BuildError: The file is inside the output and would be published with it, is too short, or cannot be
            read or created.
    """
    path = Path(file) if file else Path(out).resolve().with_name(Path(out).resolve().name + ".salt")
    if path.resolve().is_relative_to(Path(out).resolve()):
        raise BuildError(f"{path} is inside the output and would be published with it; keep it elsewhere.")
    try:
        if not path.exists():
            _make(path)
        salt = path.read_bytes().strip()
    except OSError as error:
        raise BuildError(
            f"{path}, the secret of the surrogates, cannot be used: {error.strerror}."
        ) from error
    if len(salt) < _MIN_BYTES:
        raise BuildError(
            f"{path} holds {len(salt)} bytes; a secret has at least {_MIN_BYTES}. Delete it for a new one."
        )
    return salt


def salt_id(salt: bytes) -> str:
    """Return the fingerprint of a secret for a step's settings: 16 hex digits that do not reveal it."""
    return hmac.digest(salt, b"medteb anonymize", hashlib.sha256).hex()[:16]


def _make(path: Path) -> None:
    """Write a new secret to a part file, then move it into place unless another process was faster."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.touch(mode=0o600)
    with part.open("w", encoding="ascii") as stream:
        stream.write(secrets.token_hex(32) + "\n")
        stream.flush()
        os.fsync(stream.fileno())
    try:
        os.link(part, path)
    except FileExistsError:
        pass
    finally:
        part.unlink()
