"""Editions: the data of a task, identified so that every score states which data it was measured on.

Cheap to import: standard library only.
"""

from __future__ import annotations

from medteb_mteb.editions.find import DATA_VARIABLE, find_edition, list_editions, packaged_root
from medteb_mteb.editions.manifest import (
    CROISSANT,
    MANIFEST_NAME,
    PROVENANCE,
    STATISTICS,
    Edition,
    EditionError,
    FileEntry,
    data_files,
    leads_outside,
    load_edition,
    sha256_of,
    verify,
    write_manifest,
)

__all__ = [
    "CROISSANT",
    "DATA_VARIABLE",
    "MANIFEST_NAME",
    "PROVENANCE",
    "STATISTICS",
    "Edition",
    "EditionError",
    "FileEntry",
    "data_files",
    "find_edition",
    "leads_outside",
    "list_editions",
    "load_edition",
    "packaged_root",
    "sha256_of",
    "verify",
    "write_manifest",
]
