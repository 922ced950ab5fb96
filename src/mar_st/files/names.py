"""Checks of the file names in a listing: each must stay in the folder of the listing.

A manifest, an `export.json` or a `modules.json` may come from an untrusted source. Each name in it is checked
here before it becomes a path.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mar_st.errors import MarError
from mar_st.files.reading import listed_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: One part of a name: no hidden file, no character that is special to a shell, a terminal or Windows.
_NAME_PART = re.compile(r"(?!\.)[^\x00-\x1f\x7f/\\:*?\"<>|]{1,255}")


def _old_listed_path(
    folder: Path, name: object, listing: str | Path, error: type[MarError] = MarError
) -> Path:
    """Return the path of a file or folder that a listing names.

    Symbolic links may lead to files of the same folder, and to the blobs of the Hub's cache that contains it.

    Args:
        folder: Folder that the names of the listing are relative to.
        name: The name, with `/` between its parts.
        listing: File that the name was read from, for the message.
        error: Class of the error.

    Raises:
        MarError: The name is invalid or leads out of the folder; raised as `error`.
    """
    parts = name.split("/") if isinstance(name, str) else []
    if not parts or not all(_NAME_PART.fullmatch(part) for part in parts):
        raise error(
            f"{listing} names {name!r}, which is not a file below {folder}. Names are relative, without '..' "
            "and hidden files. Do not use this folder, or get it again from where it was made."
        )
    path = folder.joinpath(*parts)
    if next(_links(folder, parts), None) is not None and not _within(path, folder):
        raise error(
            f"{listing} names {name!r}, which is a symbolic link out of {folder}. Put the file itself there."
        )
    return path


def refuse_links(folder: Path, error: type[MarError] = MarError) -> None:
    """Make sure that a folder holds no symbolic links, so that writes and deletions below it stay in it.

    The folder itself may be one.

    Raises:
        MarError: There is a link; raised as `error`.
    """
    for place, folders, files in os.walk(folder):  # does not follow links
        for name in (*folders, *files):
            path = Path(place, name)
            if path.is_symlink():
                raise error(
                    f"{path} is a symbolic link, and nothing is written or deleted through one. Put the "
                    "files themselves there, or give another folder."
                )


def refuse_link(path: Path, error: type[MarError] = MarError) -> None:
    """Make sure that a new folder can be moved to a name: it must not be that of a link.

    Raises:
        MarError: The path is a link; raised as `error`.
    """
    if path.is_symlink():
        raise error(f"{path} is a link; give the path that it leads to, {os.path.realpath(path)}.")


def delete_listed(
    folder: Path, names: Iterable[str], listing: str | Path, error: type[MarError] = MarError
) -> None:
    """Delete files that a listing names, and folders that become empty.

    Args:
        folder: Folder that the names are relative to.
        names: The files; missing ones are skipped.
        listing: File that the names were read from, for the message.
        error: Class of the error.

    Raises:
        MarError: A name leads out of the folder or through a symbolic link; then nothing is deleted.
    """
    paths = []
    for name in names:
        path = listed_path(folder, name, listing, error)
        link = next(_links(folder, name.split("/")), None)
        if link is not None:
            raise error(f"{link} is a symbolic link; {name!r} of {listing} is not deleted through it.")
        paths.append(path)
    for path in paths:
        path.unlink(missing_ok=True)
        for parent in path.relative_to(folder).parents[:-1]:
            try:
                (folder / parent).rmdir()
            except OSError:  # other files are there, or it is gone already
                break


def _links(folder: Path, parts: Iterable[str]) -> Iterator[Path]:
    """Symbolic links among the parts of a path below a folder."""
    path = folder
    for part in parts:
        path = path / part
        if path.is_symlink():
            yield path


def _within(path: Path, folder: Path) -> bool:
    real, root = path.resolve(), folder.resolve()
    roots = [root, *(parent.parent / "blobs" for parent in root.parents if parent.name == "snapshots")]
    return any(real.is_relative_to(allowed) for allowed in roots)
