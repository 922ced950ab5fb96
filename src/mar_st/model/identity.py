"""Identity of a model by its files or its commit."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from mar_st.model.names import model_folder

if TYPE_CHECKING:
    from collections.abc import Sequence


def model_digest(source: str, revision: str | None = None) -> str:
    """Return the identity of a folder (its files) or a Hub name (its commit, if in the local cache)."""
    folder = model_folder(source)
    if folder is not None:
        files = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".md")
        stamps = tuple((str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in files)
        return _files_digest(str(folder), stamps)
    from huggingface_hub import try_to_load_from_cache  # lazy: huggingface_hub

    cached = try_to_load_from_cache(source, "config.json", revision=revision)
    commit = Path(cached).parent.name if isinstance(cached, str) else None
    return f"hub:{source}@{commit or revision or 'main'}"


@lru_cache(maxsize=64)
def _files_digest(folder: str, stamps: Sequence[tuple[str, int, int]]) -> str:
    digest = hashlib.sha256()
    for name, _, _ in stamps:
        digest.update(f"{Path(name).relative_to(folder).as_posix()}\0".encode())
        with Path(name).open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()
