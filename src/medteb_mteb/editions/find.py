"""The active edition for a task: a user's folder, or the one that ships with the package.

This module is cheap to import: standard library only.
"""

from __future__ import annotations

import os
from difflib import get_close_matches
from pathlib import Path

from medteb_mteb.editions.manifest import MANIFEST_NAME, Edition, EditionError, load_edition

__all__ = ["DATA_VARIABLE", "find_edition", "list_editions", "packaged_root"]

DATA_VARIABLE = "MEDTEB_DATA"


def packaged_root() -> Path:
    """Return the folder of the editions that ship with this package.

    Raises:
        EditionError: If the installation holds no packaged editions.
    """
    package = Path(__file__).resolve().parents[1]
    # The wheel carries the repository's tasks/ as _tasks/; an editable install reads tasks/ itself.
    for root in (package / "_tasks", package.parents[1] / "tasks"):
        if root.is_dir():
            return root
    raise EditionError(
        f"This installation has no packaged editions (looked for {package / '_tasks'}). "
        f"Reinstall medteb, or point {DATA_VARIABLE} at a folder of editions."
    )


def find_edition(task: str) -> Edition:
    """Return the active edition: ``$MEDTEB_DATA/<task>/`` if that folder exists, else the packaged one.

    Only the manifest is read; call :func:`verify` before trusting the files.

    Raises:
        EditionError: If there is none, or its manifest is missing, malformed or of another task.
    """
    user_root = _user_root()
    # os.path: False for a name that is too long for a file.
    if user_root is not None and os.path.isdir(user_root / task):  # noqa: PTH112
        return _load_as(user_root / task, task)
    packaged = packaged_root()
    if os.path.isfile(packaged / task / MANIFEST_NAME):  # noqa: PTH113
        return _load_as(packaged / task, task)
    known = sorted(_task_names(packaged) | (_task_names(user_root) if user_root else set()))
    near = get_close_matches(task, known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else f" Known: {', '.join(known) or 'none'}."
    where = f"{user_root} or the packaged editions" if user_root else "the packaged editions"
    raise EditionError(f"No edition of task {task!r} in {where}.{hint} Set {DATA_VARIABLE} to add your own.")


def list_editions() -> list[Edition]:
    """Return the active editions, one per task, sorted by task name.

    Raises:
        EditionError: If one of them has a malformed manifest, or ``MEDTEB_DATA`` is not a folder.
    """
    user_root = _user_root()
    names = _task_names(packaged_root()) | (_task_names(user_root) if user_root else set())
    return [find_edition(name) for name in sorted(names)]


def _user_root() -> Path | None:
    value = os.environ.get(DATA_VARIABLE)
    if not value:
        return None
    try:
        root = Path(value).expanduser()
        is_folder = root.is_dir()
    except (OSError, RuntimeError):  # a name that is too long, ~name of a user that does not exist
        is_folder = False
    if not is_folder:
        raise EditionError(
            f"{DATA_VARIABLE}={value} is not a folder. Point it at a folder that holds <TaskName>/ editions, "
            "or unset it to use the packaged ones."
        )
    return root


def _task_names(root: Path) -> set[str]:
    return {path.parent.name for path in root.glob(f"*/{MANIFEST_NAME}")}


def _load_as(folder: Path, task: str) -> Edition:
    edition = load_edition(folder)
    if edition.task != task:
        raise EditionError(
            f"{folder / MANIFEST_NAME} is of task {edition.task!r}, but the folder is named {task!r}."
        )
    return edition
