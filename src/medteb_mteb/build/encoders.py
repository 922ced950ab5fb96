"""The encoders of a build: folders, names of the Hub, and the packaged model."""

from __future__ import annotations

from pathlib import Path

from medteb_mteb.packaged import NAMES, mini_folder

__all__ = ["encoder_source"]


def encoder_source(name: str) -> str:
    """Folder or Hub name of an encoder; `mar-mini` is the packaged one, unless a folder is called so.

    Args:
        name: As the user gives it.
    """
    folder = Path(name).expanduser()
    if folder.is_dir():
        return str(folder)
    return str(mini_folder()) if name in NAMES else name
