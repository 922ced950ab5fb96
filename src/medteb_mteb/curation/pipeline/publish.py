"""The editions and training sets of all steps in one folder, so that one `MEDTEB_DATA` holds them."""

from __future__ import annotations

import filecmp
import os
import shutil
from typing import TYPE_CHECKING

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.editions import MANIFEST_NAME

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["publish", "published", "withdraw"]


def publish(folder: Path, data: Path) -> None:
    """Put the output of an editions step into the common folder, by links, or by copies if links fail.

    Args:
        folder: Folder of the step: a folder per edition, and `train`.
        data: The common folder.

    Raises:
        BuildError: The common folder cannot be written.
    """
    for part in _parts(folder):
        try:
            if part.name == "train":
                (data / part.name).mkdir(parents=True, exist_ok=True)
                for file in part.iterdir():
                    (data / part.name / file.name).unlink(missing_ok=True)
                    _link(str(file), str(data / part.name / file.name))
                continue
            aside = data / f".{part.name}.part"
            shutil.rmtree(aside, ignore_errors=True)
            data.mkdir(parents=True, exist_ok=True)
            shutil.copytree(part, aside, copy_function=_link)
            shutil.rmtree(data / part.name, ignore_errors=True)
            aside.replace(data / part.name)
        except OSError as error:
            raise BuildError(
                f"{data / part.name} cannot be written ({error.strerror or error}). Fix this and repeat it."
            ) from error


def published(folder: Path, data: Path) -> bool:
    """Return True if the common folder holds all output of an editions step, not replaced by another step.

    Args:
        folder: Folder of the step.
        data: The common folder.
    """
    for part in _parts(folder):
        for path in part.iterdir():
            target = data / path.relative_to(folder)
            # The manifest of an edition holds the digests of its files.
            compared = part.name == "train" or path.name == MANIFEST_NAME
            if not target.exists() or (compared and not _same(path, target)):
                return False
    return True


def withdraw(folder: Path, data: Path) -> bool:
    """Remove the output of an editions step from the common folder, unless another step replaced it.

    Args:
        folder: Folder of the step; it may be missing.
        data: The common folder.

    Returns:
        Whether there was anything to remove.

    Raises:
        OSError: The common folder cannot be written.
    """
    removed = False
    for part in _parts(folder):
        if part.name == "train":
            for file in part.iterdir():
                target = data / part.name / file.name
                if target.is_file() and _same(file, target):
                    target.unlink()
                    removed = True
            continue
        target, manifest = data / part.name, data / part.name / MANIFEST_NAME
        if target.is_dir() and (not manifest.is_file() or _same(part / MANIFEST_NAME, manifest)):
            shutil.rmtree(target)
            removed = True
    return removed


def _parts(folder: Path) -> list[Path]:
    """Return its editions and its training sets."""
    if not folder.is_dir():
        return []
    return sorted(p for p in folder.iterdir() if p.name == "train" or (p / MANIFEST_NAME).is_file())


def _same(one: Path, other: Path) -> bool:
    return one.samefile(other) or filecmp.cmp(one, other, shallow=False)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
