"""Results that are private: of models, tasks or data of this machine. They are never submitted to mteb."""

from __future__ import annotations

import re
from functools import cache

import mteb

from mar_st.errors import MarError
from medteb_mteb.editions import MANIFEST_NAME, load_edition, packaged_root
from medteb_mteb.models.local import LOCAL, RUN
from medteb_mteb.tasks import REPLACED, TASKS


def reason_to_hold(model: str, task: str, data_revision: str) -> str | None:
    """Return why a result must not leave this machine; None if it may.

    Names of models and tasks from folders may identify a clinic and its data, and a score on a local edition
    could be mistaken for one on the public data of the same name.

    Args:
        model: Name of the model.
        task: Name of the task.
        data_revision: Revision of the data that the score was measured on.
    """
    organisation, _, name = model.partition("/")
    if organisation == RUN:
        return "the model is a ranking of this machine"
    if organisation == LOCAL or "/" in name or organisation.startswith((".", "~")) or not organisation:
        return "the model is a folder of this machine"
    try:
        known = type(mteb.get_task(task))
    except KeyError:
        return "the task is unknown"
    if not (known.__module__.startswith("mteb.") or known in _ours()):
        return "the task is a folder of this machine"
    if is_digest(data_revision) and (task, data_revision) not in _packaged():
        return "the data are a folder of this machine"
    return None


def is_digest(revision: str) -> bool:
    """Return True if a revision of data is the digest of an edition or a folder; the Hub's have 40 digits."""
    return re.fullmatch("[0-9a-f]{64}", revision) is not None


@cache
def _ours() -> frozenset[type]:
    return frozenset((*TASKS, *REPLACED.values()))


@cache
def _packaged() -> frozenset[tuple[str, str]]:
    """Return task and digest of the packaged editions."""
    try:
        editions = [load_edition(path.parent) for path in packaged_root().glob(f"*/{MANIFEST_NAME}")]
    except MarError:  # an installation without them
        return frozenset()
    return frozenset((edition.task, edition.digest) for edition in editions)
