"""Cards of the tasks: where the data come from, their licence, and what was and was not verified."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from medteb_mteb.tasks import REPLACED, TASKS

if TYPE_CHECKING:
    from mteb.abstasks.abstask import AbsTask

__all__ = ["Checks", "TaskCard", "cards_page", "task_cards"]


@dataclass(frozen=True)
class Checks:
    """Checks of the tasks of one module.

    Attributes:
        title: Name of the group.
        verified: What was verified.
        not_verified: What was not verified.
    """

    title: str
    verified: str
    not_verified: str


@dataclass(frozen=True)
class TaskCard:
    """A task's card.

    Attributes:
        name: The task's name.
        type: Type of the task.
        source: Hub name of the data, or their other source.
        revision: Revision of the data; empty if none is pinned.
        licence: Licence in mteb's metadata.
        checks: Group that says what was verified.
    """

    name: str
    type: str
    source: str
    revision: str
    licence: str
    checks: Checks


_EDITION = Checks(
    "MedTEB, packaged editions",
    "the packaged `mini` edition: every file against its manifest, and end to end with the shipped models",
    "the published benchmark, whose data are closed; `mini` is synthetic and ranks no models",
)
#: Checks by the module that defines the tasks.
CHECKS_BY_MODULE = {
    "medteb_mteb.tasks.retrieval": _EDITION,
    "medteb_mteb.tasks.reranking": _EDITION,
    "medteb_mteb.tasks.sts": _EDITION,
    "medteb_mteb.tasks.of_mteb": Checks(
        "mteb's tasks, with a local copy as an option",
        "that without a copy they are mteb's tasks unchanged, and that folders of the pushed layout run",
        "the data on the Hub, which mteb itself describes and tests",
    ),
    "medteb_mteb.tasks.nano": Checks(
        "NanoCMTEB and NanoMedical",
        "figures against the published cards; queries of medical, ecom and video from their sources; loader, "
        "tasks on folders of the published layout",
        "the data on the Hub and the published scores (`medteb nano check` compares them)",
    ),
    "medteb_mteb.tasks.cmirb": Checks(
        "CMIRB",
        "names, sizes and repositories against its readme and code; its means; loader, tasks on folders of "
        "the published layout",
        "the data on the Hub, seven of ten cards, and the scores (`pytest -m network` compares them)",
    ),
    "medteb_mteb.tasks.english": Checks(
        "English MedTEB",
        "names, types and the paper's arithmetic; every task on snapshot folders with made-up content",
        "the authors' rows, which are not published; benchmarks/english.md says which data are real",
    ),
    "medteb_mteb.tasks.relatives": Checks(
        "Graded MedQuAD and BMRetriever's sets",
        "counts and contents of the sets that are built from public raw files",
        "the authors' samples of queries and documents; sets of users' copies were built from made-up rows",
    ),
}


def task_cards() -> list[TaskCard]:
    """Return the cards of all tasks of this package, in the order of the registry.

    Raises:
        KeyError: The module of a task has no entry in `CHECKS_BY_MODULE`.
    """
    return [_card(task) for task in (*TASKS, *REPLACED.values())]


def _card(task: type[AbsTask]) -> TaskCard:
    metadata = getattr(task, "base_metadata", task.metadata)
    revision = str(metadata.dataset.get("revision", ""))
    pinned = revision if len(revision) == 40 else ""
    return TaskCard(
        name=metadata.name,
        type=metadata.type,
        source=str(metadata.dataset["path"]),
        revision=pinned,
        licence=metadata.license or "not specified",
        checks=CHECKS_BY_MODULE[task.__module__],
    )


def cards_page() -> str:
    """Return all cards as a page of Markdown."""
    lines = [
        "# Cards of all tasks",
        "",
        "Licences are those of mteb's metadata, for the source of the texts.",
    ]
    cards = task_cards()
    for checks in dict.fromkeys(card.checks for card in cards):
        lines += ["", f"## {checks.title}", "", f"**Verified**: {checks.verified}.", ""]
        lines += [
            f"**Not verified**: {checks.not_verified}.",
            "",
            "| task | type | data | revision | licence |",
        ]
        lines += ["|---|---|---|---|---|"]
        lines += [
            f"| `{card.name}` | {card.type} | `{card.source}` | {card.revision[:8] or 'none pinned'} "
            f"| {card.licence} |"
            for card in cards
            if card.checks is checks
        ]
    return "\n".join([*lines, ""])
