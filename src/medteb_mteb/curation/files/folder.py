"""The folder of a step: locking, identity, and atomic writes."""

from __future__ import annotations

import json
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mar_st import files
from mar_st.files.locks import locked
from medteb_mteb.curation.files.read import MANIFEST, STEP_FILE
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.editions import sha256_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["alone", "claim", "lineage", "read_json", "refuse_within", "write_json", "write_text"]


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Lock a folder against other processes; the lock of a killed process is released.

    Raises:
        BuildError: Another process uses the folder, or it cannot be written to.
    """
    with ExitStack() as held:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            held.enter_context(locked(folder, BuildError))
        except OSError as error:
            raise BuildError(f"{folder} cannot be written to ({error.strerror}).") from error
        yield


def refuse_within(out: Path, source: Path) -> None:
    """Refuse to write into a folder of data, whose files and manifest must stay as they are.

    Args:
        out: The folder to write.
        source: The folder of data.

    Raises:
        BuildError: `out` is `source`, or lies in it.
    """
    if out.resolve().is_relative_to(source.resolve()):
        raise BuildError(f"{out} is part of the input {source}; give another folder to write to.")


def claim(folder: Path, identity: Mapping[str, Any]) -> None:
    """Assign the folder to this step.

    Raises:
        BuildError: The folder belongs to another step, or holds other files.
    """
    marker = folder / STEP_FILE
    if marker.is_file():
        recorded = read_json(marker)
        changed = [key for key in {**recorded, **identity} if recorded.get(key) != identity.get(key)]
        if changed:
            names = ", ".join("shard size" if key == "shard" else key for key in changed)
            raise BuildError(
                f"{folder} holds a step {recorded.get('step')} with other {names}. Give another folder, or "
                "delete it."
            )
        return
    others = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    if others:
        raise BuildError(f"{folder} is not empty ({others[0]}); give a new folder.")
    write_json(marker, dict(identity))


def lineage(source: str | Path) -> list[dict[str, Any]]:
    """Return the steps that made the input, first one first: name, settings, digest of the manifest.

    Raises:
        BuildError: The manifest of the input is damaged.
    """
    path = Path(source) / MANIFEST
    if not path.is_file() or not (Path(source) / STEP_FILE).is_file():
        return []
    manifest = read_json(path)
    # Not every step counts what it has read, and some have several inputs.
    names = ("step", "settings", "sources", "retrievers", "read", "kept", "dropped")
    own = {name: manifest[name] for name in names if name in manifest}
    before = manifest.get("before", [])
    steps = before if isinstance(before, list) else [before]
    if not all(isinstance(step, dict) for step in steps):
        raise BuildError(
            f"{path} is damaged (expected objects under 'before', got {repr(before)[:60]}). Restore it, or "
            "make its folder again."
        )
    return [*steps, {**own, "manifest": sha256_of(path)}]


def read_json(path: Path) -> dict[str, Any]:
    """Return the content of a JSON file that holds an object.

    Raises:
        BuildError: The file is not JSON, or does not hold an object.
        OSError: The file cannot be read.
    """
    try:
        content = files.read_json(path)
    except files.JsonError as error:
        raise BuildError(f"{path} is damaged ({error}). Restore it, or make its folder again.") from error
    if not isinstance(content, dict):
        raise BuildError(
            f"{path} is damaged (expected a JSON object, got {type(content).__name__}). Restore it, or make "
            "its folder again."
        )
    return content


def write_json(path: Path, content: Any) -> None:
    """Write JSON, as `write_text`."""
    write_text(path, json.dumps(content, ensure_ascii=False, indent=2) + "\n")


def write_text(path: Path, content: str, *, private: bool = False) -> None:
    """Write a file atomically; the content is on disk before the name is.

    Args:
        path: The file.
        content: Content of the file.
        private: Let only the user read and write the file.

    Raises:
        BuildError: The file cannot be written, or UTF-8 cannot hold the content.
    """
    try:
        files.write_text(path, content, private=private)
    except UnicodeEncodeError as error:
        line = content.count("\n", 0, error.start) + 1
        raise BuildError(
            f"{path} cannot be written: line {line} would hold half of a surrogate pair "
            f"({content[error.start]!a}), which no file can hold. Remove it from the input."
        ) from error
    except OSError as error:
        raise BuildError(
            f"{path} cannot be written ({error.strerror}); what was finished before is kept. Free "
            "disk space and run the command again."
        ) from error
