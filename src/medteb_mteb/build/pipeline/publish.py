"""The editions and training sets of all steps in one folder, so that one `MEDTEB_DATA` holds them."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from medteb_mteb.build.records import BuildError
from medteb_mteb.editions import MANIFEST_NAME

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["publish", "published", "withdraw"]


def publish(folder: Path, data: Path) -> None:
    """Put what an editions step wrote into the common folder; files are linked, or copied where links fail.

    Args:
        folder: Folder of the step: a folder per edition, and `train`.
        data: The common folder.

    Raises:
        BuildError: It cannot be written.
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
            raise BuildError(f"{data / part.name} cannot be written ({error.strerror}).") from error


def published(folder: Path, data: Path) -> bool:
    """Whether all that an editions step wrote is in the common folder.

    Args:
        folder: Folder of the step.
        data: The common folder.
    """
    return all((data / path.relative_to(folder)).exists() for p in _parts(folder) for path in p.iterdir())


def withdraw(folder: Path, data: Path) -> None:
    """Take what an editions step wrote out of the common folder.

    Args:
        folder: Folder of the step.
        data: The common folder.
    """
    for part in _parts(folder):
        if part.name == "train":
            for file in part.iterdir():
                (data / part.name / file.name).unlink(missing_ok=True)
        else:
            shutil.rmtree(data / part.name, ignore_errors=True)


def _parts(folder: Path) -> list[Path]:
    """Its editions, and its training sets."""
    return sorted(p for p in folder.iterdir() if p.name == "train" or (p / MANIFEST_NAME).is_file())


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
