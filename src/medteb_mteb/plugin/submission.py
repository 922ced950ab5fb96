"""Filter of the results that `mteb submit-results` may send from this machine.

A result names its task and its model. Names of tasks and models from folders may identify a clinic and its
data, and a score on a local edition could be mistaken for one on the public data of the same name.
"""

from __future__ import annotations

import json
import logging
import re
from typing import TYPE_CHECKING

from medteb_mteb.editions import MANIFEST_NAME, EditionError, load_edition, packaged_root
from medteb_mteb.models.local import LOCAL

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence
    from pathlib import Path

    from mteb.models import ModelMeta

__all__ = ["clean_settings", "public_results"]

logger = logging.getLogger(__name__)

#: mteb's file of run settings, a line per task; it is submitted beside the results.
SETTINGS = "run_settings.jsonl"

#: Data of this machine: an edition or a folder. Revisions on the Hub have 40 digits.
_DIGEST = re.compile(r"[0-9a-f]{64}")


def public_results(
    files: Mapping[ModelMeta, Sequence[Path]], public: Container[str]
) -> dict[ModelMeta, list[Path]]:
    """Return the result files that may be submitted, by model; warn about those held back, with reasons.

    Args:
        files: Files found by mteb, `<model>/<revision>/[experiments/<name>/]<task>.json`.
        public: Names of the tasks that mteb or this package defines.
    """
    packaged = _packaged()
    held: dict[str, set[str]] = {}
    free: dict[ModelMeta, list[Path]] = {}
    for meta, paths in files.items():
        for path in paths:
            reason = _reason_to_hold(meta, path, public, packaged)
            if reason is None:
                free.setdefault(meta, []).append(path)
            else:
                held.setdefault(reason, set()).add(f"{meta.name} on {path.stem}")
    if held:
        lines = "; ".join(f"{reason}: {_shown(names)}" for reason, names in held.items())
        logger.warning("medteb keeps these results out of the submission, which is public. %s.", lines)
    return free


def clean_settings(copied: Iterable[Path]) -> None:
    """Remove tasks without a result beside them from copied files of run settings."""
    for settings in {path for path in copied if path.name == SETTINGS}:
        tasks = {path.stem for path in settings.parent.glob("*.json")}
        lines = settings.read_text(encoding="utf-8").splitlines()
        kept = [line for line in lines if line.strip() and json.loads(line).get("task") in tasks]
        settings.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")


def _reason_to_hold(
    meta: ModelMeta, result: Path, public: Container[str], packaged: Container[tuple[str, str]]
) -> str | None:
    if str(meta.name).startswith(f"{LOCAL}/"):
        return "the model is a folder of this machine"
    if result.stem not in public:
        return "the task is a folder of this machine, or unknown"
    try:
        revision = json.loads(result.read_text(encoding="utf-8"))["dataset_revision"]
    except (OSError, ValueError, KeyError, TypeError):
        return "the file cannot be read"
    if _DIGEST.fullmatch(str(revision)) and (result.stem, revision) not in packaged:
        return "the data are a folder of this machine"
    return None


def _packaged() -> set[tuple[str, str]]:
    """Return task and digest of the editions that come with this package."""
    try:
        editions = [load_edition(path.parent) for path in packaged_root().glob(f"*/{MANIFEST_NAME}")]
    except EditionError:
        return set()
    return {(edition.task, edition.digest) for edition in editions}


def _shown(names: set[str], most: int = 5) -> str:
    first = ", ".join(sorted(names)[:most])
    return first if len(names) <= most else f"{first} and {len(names) - most} more"
