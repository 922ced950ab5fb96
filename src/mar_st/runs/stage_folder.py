"""The folder of a stage: its finished model, and the marker that the stage is finished."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING

from mar_st.errors import MarError
from mar_st.files import move_folder, write_text
from mar_st.files.reading import read_record
from mar_st.model.tokenizers import forget_lengths

if TYPE_CHECKING:
    from pathlib import Path

    from sentence_transformers import SentenceTransformer

#: Marker of a finished stage.
DONE_FILE = "done.json"
#: Digest of the stage that a folder was made for.
IDENTITY_FILE = "identity"


def is_finished(folder: Path, identity: str) -> bool:
    """Return True if the folder holds the finished stage of this digest."""
    marker = read_record(folder / DONE_FILE)
    return marker is not None and marker.get("digest") == identity


def restore_marker(folder: Path, marker: dict[str, str]) -> bool:
    """Write the marker of a finished stage again if it is damaged.

    A marker is written after the whole model, so with a damaged one the model is complete, too. The file
    `identity` says which stage it is.

    Args:
        folder: Folder of the stage.
        marker: The marker that the stage should have.

    Returns:
        True if the marker was damaged and the folder holds the model of this stage.

    Raises:
        MarError: The marker is damaged, and `identity` is missing or the model is.
    """
    path, identity = folder / DONE_FILE, folder / IDENTITY_FILE
    found = read_record(path)
    if not path.is_file() or (found is not None and isinstance(found.get("digest"), str)):
        return False
    named = identity.read_text(encoding="utf-8", errors="replace") if identity.is_file() else None
    if named is None or (named == marker["digest"] and not (folder / "model" / "modules.json").is_file()):
        lost = "its model" if named else f"the file {IDENTITY_FILE}"
        raise MarError(
            f"{path} is damaged, and {lost} is missing beside it. Copy the folder again, or delete it to "
            "train the stage again."
        )
    if named != marker["digest"]:  # a stage of other settings, which is trained again
        return False
    write_text(path, json.dumps(marker))
    return True


def adopt(own: Path, folder: Path, identity: str) -> None:
    """Move a stage into the store if a run finished it without a store.

    Args:
        own: Its folder in the run.
        folder: Its folder in the store, or `own` without a store.
        identity: Digest of the stage.
    """
    if own == folder or own.is_symlink() or is_finished(folder, identity) or not is_finished(own, identity):
        return
    shutil.rmtree(folder, ignore_errors=True)
    try:
        own.rename(folder)
    except OSError:  # another file system: a killed copy must not look like a finished stage
        part = folder.with_name(f"{folder.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        shutil.copytree(own, part, symlinks=True)
        move_folder(part, folder)
        shutil.rmtree(own)


def keep_model(model: SentenceTransformer, folder: Path, marker: dict[str, str]) -> None:
    """Save the model of a finished stage, then the marker, then drop the checkpoints."""
    part, target = folder / "model.part", folder / "model"
    shutil.rmtree(part, ignore_errors=True)
    forget_lengths(model)
    model.save_pretrained(str(part), create_model_card=False)
    shutil.rmtree(target, ignore_errors=True)
    move_folder(part, target)
    write_text(folder / DONE_FILE, json.dumps(marker))
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)


def link_weights(source: str, target: str) -> str:
    """Link weights and copy other files; for `shutil.copytree`.

    `store_as` replaces the file, so the stage keeps its own.
    """
    if source.endswith(".safetensors"):
        try:
            os.link(source, target)
        except OSError:
            return shutil.copy2(source, target)
        return target
    return shutil.copy2(source, target)
