"""Finds the pools, judgements and training sets of a build."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from medteb_mteb.curation.files.read import STEP_FILE
from medteb_mteb.curation.files.records import BuildError

if TYPE_CHECKING:
    from pathlib import Path

    from medteb_mteb.validate.material import Sources

__all__ = ["of_build", "steps_of"]


def of_build(root: Path, sources: Sources) -> Sources:
    """Return the sources with the pools, judgements and training sets of a build if none are given.

    Args:
        root: Folder of the build, with a folder for each step.
        sources: The given sources.

    Raises:
        BuildError: The folder is not a build, or has several steps of a kind.
    """
    steps = steps_of(root)
    train = root / "data" / "train"
    return replace(
        sources,
        pools=sources.pools or _only(steps, "pool", "--pools"),
        judgements=sources.judgements or _only(steps, "judge", "--judgements"),
        against=sources.against or ([str(train)] if train.is_dir() and any(train.iterdir()) else ()),
    )


def steps_of(root: Path) -> dict[str, list[Path]]:
    """Return the folders of the steps of a build, by kind.

    Raises:
        BuildError: The folder is not a build, or a `step.json` cannot be read.
    """
    folders: dict[str, list[Path]] = {}
    for file in sorted(root.glob(f"*/{STEP_FILE}")) if root.is_dir() else []:
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            raise BuildError(f"{file} cannot be read as JSON. Run the build again, or take it out.") from None
        kind = content.get("step") if isinstance(content, dict) else None
        folders.setdefault(str(kind), []).append(file.parent)
    if not folders:
        raise BuildError(f"{root} holds no step of a build. Give the folder that medteb build wrote ('out').")
    return folders


def _only(steps: dict[str, list[Path]], kind: str, option: str) -> Path | None:
    folders = steps.get(kind, [])
    if len(folders) > 1:
        names = ", ".join(folder.name for folder in folders)
        raise BuildError(
            f"The build has several steps of the kind {kind!r}: {names}. Choose one by {option}."
        )
    return folders[0] if folders else None
