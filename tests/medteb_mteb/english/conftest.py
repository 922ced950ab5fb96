"""A snapshot of English MedTEB in `$MEDTEB_DATA`."""

from __future__ import annotations

import json

import pytest
from tests.medteb_mteb.english.snapshots import write_snapshot


@pytest.fixture
def snapshot(tmp_path, monkeypatch):
    """Writes the named tasks, and `snapshot.json` with options where some are given."""

    def write(*names, **options):
        folder = write_snapshot(tmp_path / "data", list(names))
        if options:
            content = {"options": options, "tasks": {}}
            (folder / "snapshot.json").write_text(json.dumps(content), encoding="utf-8")
        monkeypatch.setenv("MEDTEB_DATA", str(tmp_path / "data"))
        return folder

    return write
