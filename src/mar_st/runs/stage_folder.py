"""The folder of a stage: its finished model, and the marker that the stage is finished."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING

from mar_st.errors import MarError
from mar_st.files import JsonError, move_folder, read_json, write_text
from mar_st.model.tokenizers import forget_lengths

if TYPE_CHECKING:
    from pathlib import Path

    from sentence_transformers import SentenceTransformer

#: Marker of a finished stage.
DONE_FILE = "done.json"


def is_finished(folder: Path, identity: str) -> bool:
    """Return True if the folder holds the finished stage of this digest.

    Raises:
        MarError: The marker is damaged.
    """
    marker = folder / DONE_FILE
    try:
        content = read_json(marker) if marker.is_file() else {}
    except JsonError as error:
        raise MarError(f"{marker} is damaged ({error}). Delete {folder} to train the stage again.") from error
    return isinstance(content, dict) and content.get("digest") == identity


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
