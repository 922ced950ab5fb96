"""Finding the checkpoint from which a killed training resumes."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

#: The file that transformers' trainer writes last.
_STATE = "trainer_state.json"


def last_checkpoint(folder: Path, *, delete: bool = True) -> str | None:
    """Return the newest complete checkpoint below `folder`.

    Args:
        folder: Folder of the checkpoints.
        delete: Delete checkpoints that were not written completely; only one process should do so.
    """
    numbered = {int(path.name.rpartition("-")[2]): path for path in folder.glob("checkpoint-*")}
    for _, path in sorted(numbered.items(), reverse=True):
        try:
            json.loads((path / _STATE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            if delete:
                shutil.rmtree(path)
        else:
            return str(path)
    return None
