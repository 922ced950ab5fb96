"""Cards of the tasks: where the data come from, their licence, and what was and was not verified."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from medteb_mteb.tasks import REPLACED, TASKS
from medteb_mteb.tasks._built import BuiltTask
from medteb_mteb.tasks._edition_task import EditionTask
from medteb_mteb.tasks.english import SnapshotTask

if TYPE_CHECKING:
    from mteb.abstasks.abstask import AbsTask

__all__ = ["Checks", "TaskCard", "cards_page", "task_cards"]


@dataclass(frozen=True)
class Checks:
    """Checks of a group of tasks.

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
        source: Source of the texts: a Hub repository as `[NAME](URL)`, else a name, and its address if there
            is one.
        revision: Revision of a Hub repository; empty if none is pinned or the source is another one.
        licence: Licence or terms that the source states.
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
}
#: Checks of English MedTEB by what building a task needs; of sources whose files were at hand, by source.
_REAL_FILES = Checks(
    "English MedTEB, from public files",
    "names, types and the paper's arithmetic; counts of the tasks built from the real files, and the "
    "scores in benchmarks/english.md",
    "the authors' rows, which are not published; they rewrote MedQuAD's answers by an LLM, here they are raw",
)
_FETCHED = Checks(
    "English MedTEB, from services on the Internet",
    "names, types and the paper's arithmetic; fetching and builders on responses of the recorded form from a "
    "local server; every task on a snapshot with made-up content",
    "the services themselves, the texts that they return today, and the authors' unpublished rows",
)
_NOTES = Checks(
    "English MedTEB, from MIMIC-IV",
    "names, types and the paper's arithmetic; the builders of all 26 tasks on made-up notes in MIMIC-IV's "
    "files; every task on a snapshot with made-up content",
    "MIMIC-IV itself, which needs credentials, and the authors' rows, which are not published",
)
_ENGLISH = {"MedMCQA": _REAL_FILES, "MedQA": _REAL_FILES, "MedQuAD": _REAL_FILES, "MIMIC-IV": _NOTES}
#: Checks of graded MedQuAD and BMRetriever's sets: by whether their files are public and were at hand.
_BUILT = Checks(
    "Graded MedQuAD and BMRetriever's sets, from public files",
    "counts and contents of the sets built from the real files, and the scores in benchmarks/english.md",
    "the authors' samples of queries and documents, which are not published",
)
_OWN_COPIES = Checks(
    "BMRetriever's sets, from your own copies",
    "every set end to end, built from made-up rows in the form of the source",
    "the sources themselves, and the authors' samples of queries and documents",
)
_OWN = ("ICliniqRetrieval", "RELISHReranking", "DrugBankRetrieval")
#: Addresses of the sources of English MedTEB.
_ADDRESSES = {
    "ClinicalTrials.gov": "clinicaltrials.gov",
    "MIMIC-IV": "physionet.org/content/mimiciv",
    "MedMCQA": "github.com/medmcqa/medmcqa",
    "MedQA": "github.com/jind11/MedQA",
    "MedQuAD": "github.com/abachaa/MedQuAD",
    "PMC": "pmc.ncbi.nlm.nih.gov",
    "PubMed": "pubmed.ncbi.nlm.nih.gov",
    "Wikipedia": "en.wikipedia.org",
    "bioRxiv": "biorxiv.org",
    "medRxiv": "medrxiv.org",
}


def task_cards() -> list[TaskCard]:
    """Return the cards of all tasks of this package, in the order of the registry.

    Raises:
        KeyError: A task belongs to no group of checks.
    """
    return [_card(task) for task in (*TASKS, *REPLACED.values())]


def _card(task: type[AbsTask]) -> TaskCard:
    metadata = getattr(task, "base_metadata", task.metadata)
    revision = str(metadata.dataset.get("revision", ""))
    licence = task.of.licence if issubclass(task, SnapshotTask) else metadata.license
    return TaskCard(
        name=metadata.name,
        type=metadata.type,
        source=_source(task, str(metadata.dataset["path"])),
        revision=revision if len(revision) == 40 else "",
        licence=licence or "not specified",
        checks=_checks(task, metadata.name),
    )


def _source(task: type[AbsTask], path: str) -> str:
    if issubclass(task, SnapshotTask):
        return f"{task.of.source} ({_ADDRESSES[task.of.source]})"
    on_hub = f"[{path}](https://huggingface.co/datasets/{path})"
    if issubclass(task, BuiltTask):  # the only one of mteb's among them can also be fetched
        return task.sources if path.startswith("medteb/") else f"{on_hub} or {task.sources}"
    return "the packaged edition, or your own" if issubclass(task, EditionTask) else on_hub


def _checks(task: type[AbsTask], name: str) -> Checks:
    if issubclass(task, SnapshotTask):
        return _ENGLISH.get(task.of.source, _FETCHED)
    if issubclass(task, BuiltTask):
        return _OWN_COPIES if name in _OWN else _BUILT
    return CHECKS_BY_MODULE[task.__module__]


def cards_page() -> str:
    """Return all cards as a page of Markdown."""
    lines = [
        "# Cards of all tasks",
        "",
        "Licences and terms are those that the source of the texts states.",
    ]
    cards = task_cards()
    for checks in dict.fromkeys(card.checks for card in cards):
        lines += ["", f"## {checks.title}", "", f"**Verified**: {checks.verified}.", ""]
        lines += [
            f"**Not verified**: {checks.not_verified}.",
            "",
            "| task | type | source | revision | licence |",
        ]
        lines += ["|---|---|---|---|---|"]
        lines += [
            f"| `{card.name}` | {card.type} | {card.source} | {_revision(card)} | {card.licence} |"
            for card in cards
            if card.checks is checks
        ]
    return "\n".join([*lines, ""])


def _revision(card: TaskCard) -> str:
    if card.revision:
        return f"`{card.revision[:8]}`"
    return "none pinned" if card.source.startswith("[") else "-"
