"""Fetching from the server of the tests, and what a fetch leaves."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from medteb_mteb.curation.relatives.fetch import fetch_source

if TYPE_CHECKING:
    from pathlib import Path

    from tests.medteb_mteb.curation.relatives.api_server import Apis

ME = "me@example.org"


def fetch(apis: Apis, name: str, folder: Path, **options: Any) -> dict[str, Any]:
    """Fetch a source from the server, quickly."""
    return fetch_source(name, folder, contact=ME, per_second=100, address=apis.url, **options)


def content(folder: Path) -> dict[str, bytes | str]:
    """All files but the lock, without the days."""
    files: dict[str, bytes | str] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != ".lock":
            data: bytes | str = path.read_bytes()
            if path.name == "fetched.json":
                frozen = json.loads(data)
                frozen["asked"] = ""
                for one in frozen["responses"]:
                    assert one.pop("day").startswith("20")
                data = json.dumps(frozen)
            files[path.relative_to(folder).as_posix()] = data
    return files
