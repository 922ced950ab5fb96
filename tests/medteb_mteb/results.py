"""Results as mteb saves them, with made-up scores."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def write_result(folder: Path, model: str, task: str, score: float, seconds: float = 2.0) -> Path:
    """A result as mteb saves it."""
    path = folder / "results" / model.replace("/", "__") / "1" / f"{task}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"task_name": task, "scores": {"test": [{"main_score": score}]}, "evaluation_time": seconds}
    path.write_text(json.dumps(content))
    (path.parent / "model_meta.json").write_text("{}")
    return path
