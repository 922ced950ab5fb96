"""A folder of data into which several steps write, each its own entries, in any order.

A step writes into a hidden folder inside, whose content is moved when it is complete. If a step was killed
during the move, the next start of the same step undoes the move and writes the same again.
"""

from __future__ import annotations

import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from medteb_mteb.curation.files.folder import alone
from medteb_mteb.curation.files.records import BuildError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["ENTRIES", "placing", "refuse_taken"]

#: Files that steps put into a folder of data. With any other file, the folder was given by mistake.
ENTRIES = ("MedTEBRetrieval", "MedTEBReranking", "MedTEBSTS", "train", "sts")


def refuse_taken(out: str | Path, step: str, names: Sequence[str]) -> None:
    """Refuse a folder into which a step could not put its entries; call it before the work starts.

    Args:
        out: The folder; it may be missing.
        step: Name of the step.
        names: Paths of the step's entries inside the folder.

    Raises:
        BuildError: An entry exists already, or the folder holds files that no step has written.
    """
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise BuildError(f"{folder} is not a folder.")
    if not folder.is_dir() or _ready(folder, step).exists():
        return
    foreign = sorted(
        path.name for path in folder.iterdir() if path.name not in ENTRIES and not path.name.startswith(".")
    )
    existing = foreign or [name for name in names if (folder / name).exists()]
    if existing:
        raise BuildError(
            f"{folder} is not empty: it holds {existing[0]}. Give another folder, or delete that first."
        )


@contextmanager
def placing(out: str | Path, step: str, names: Sequence[str]) -> Iterator[Path]:
    """Provide a folder to write entries to; at the end all of them are moved to `out`, or none.

    Args:
        out: The folder; created if it is missing.
        step: Name of the step.
        names: Paths of all entries that the step may write, inside the folder.

    Raises:
        BuildError: See `refuse_taken`; or another process uses the folder, or it cannot be written.
    """
    folder = Path(out)
    refuse_taken(folder, step, names)
    part, ready = folder / f".{step}.part", _ready(folder, step)
    with alone(folder):
        try:
            _undo(folder, ready, names)
            refuse_taken(folder, step, names)
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            yield part
            part.replace(ready)
            for name in names:
                if (ready / name).exists():
                    (folder / name).parent.mkdir(parents=True, exist_ok=True)
                    (ready / name).replace(folder / name)
            shutil.rmtree(ready)
        except OSError as error:
            shutil.rmtree(part, ignore_errors=True)
            with suppress(OSError):  # the next start undoes what cannot be undone now
                _undo(folder, ready, names)
            raise BuildError(f"{folder} cannot be written to ({error.strerror or error}).") from error
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise


def _ready(folder: Path, step: str) -> Path:
    return folder / f".{step}.ready"


def _undo(folder: Path, ready: Path, names: Sequence[str]) -> None:
    """Undo the moves of a killed run unless it had moved all files, none of which existed before."""
    if not ready.exists():
        return
    unmoved = {name for name in names if (ready / name).exists()}
    for moved in (folder / name for name in names if unmoved and name not in unmoved):
        if moved.is_dir():
            shutil.rmtree(moved)
        else:
            moved.unlink(missing_ok=True)
    shutil.rmtree(ready)
