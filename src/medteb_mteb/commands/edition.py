"""`medteb edition`: list, show, verify and write editions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from medteb_mteb.editions import (
    MANIFEST_NAME,
    Edition,
    EditionError,
    find_edition,
    list_editions,
    load_edition,
    verify,
    write_manifest,
)

__all__ = ["as_json", "editions", "resolve", "statistics", "verify_all", "write"]


def editions() -> list[Edition]:
    """Return the active editions."""
    return list_editions()


def resolve(name_or_folder: str) -> Edition:
    """Return an edition by task name, or by folder if the argument is one."""
    folder = Path(name_or_folder).expanduser()
    # Task names hold no separators and do not begin with a dot.
    looks_like_path = folder.is_dir() or name_or_folder.startswith((".", "~")) or "/" in name_or_folder
    return load_edition(folder) if looks_like_path else find_edition(name_or_folder)


def verify_all(names: list[str]) -> list[tuple[Edition, str]]:
    """Verify the named editions (all in force if none is named): (edition, problem or empty)."""
    outcomes = []
    for edition in [resolve(name) for name in names] or editions():
        problem = ""
        try:
            verify(edition)
        except EditionError as error:
            problem = str(error)
        outcomes.append((edition, problem))
    return outcomes


def write(folder: Path, task: str | None, name: str, version: str, licence: str) -> Edition:
    """Check a folder's data and write its manifest, with the counts found and the settings of its card."""
    from medteb_mteb.folders import read_folder  # lazy: yaml
    from medteb_mteb.folders.settings import PINNED_SETTINGS  # lazy: yaml

    # The extra fields of an earlier manifest are kept; its files are expected to have changed.
    kept: dict[str, Any] = load_edition(folder).extra if (folder / MANIFEST_NAME).is_file() else {}
    content = read_folder(folder, check_manifest=False, card_first=True)
    settings = content.layout.settings
    pinned = {key: value for key in PINNED_SETTINGS if (value := getattr(settings, key)) is not None}
    if content.retrieval is not None:
        data = content.retrieval
        counts = {
            "queries": len(data.queries),
            "corpus": len(data.corpus),
            "qrels": sum(len(documents) for documents in data.qrels.values()),
        }
    else:
        counts = {split: len(rows) for split, rows in content.records.items()}
    return write_manifest(
        folder,
        task=task or settings.name or folder.resolve().name,
        name=name,
        version=version,
        licence=licence,
        counts=counts,
        **{**kept, **pinned},
    )


def statistics(names: list[str], *, overwrite: bool = False) -> list[tuple[str, Path, dict[str, Any]]]:
    """Return the descriptive statistics of tasks' editions or of data folders: (task, file, statistics).

    Args:
        names: Task names or folders; if empty, all active editions.
        overwrite: Compute the statistics even if they exist.

    Raises:
        EditionError: If there is no such edition, or its folder cannot be written to.
        FolderError: If the data have problems.
    """
    from medteb_mteb.folders import task_from_folder  # lazy: mteb

    rows = []
    for name in names or [edition.task for edition in editions()]:
        folder = Path(name).expanduser()
        task = task_from_folder(folder if folder.is_dir() else resolve(name).path)
        computed = task.calculate_descriptive_statistics(overwrite_results=overwrite)
        rows.append((task.metadata.name, task.metadata.descriptive_stat_path, dict(computed)))
    return rows


def as_json(edition: Edition) -> dict[str, Any]:
    """Return an edition as JSON values: its manifest, digest and path."""
    return {**edition.to_manifest(), "digest": edition.digest, "path": str(edition.path)}
