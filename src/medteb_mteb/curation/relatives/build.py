"""Builds the data of a task from a folder of raw files."""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.relatives import bmretriever, medquad, own_copies
from medteb_mteb.curation.relatives.english import SNAPSHOT_TASKS, write_rows
from medteb_mteb.curation.relatives.raw import Raw
from medteb_mteb.curation.relatives.write import write_built
from medteb_mteb.curation.relatives.written import WRITTEN_TASKS, estimate_drafts, write_drafts
from medteb_mteb.english.snapshot import SnapshotOptions
from medteb_mteb.english.table import english_tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from medteb_mteb.curation.llm import Cost
    from medteb_mteb.curation.relatives.write import BuiltSet
    from medteb_mteb.curation.relatives.written import Drafts, WriterSettings, WrittenTask
    from medteb_mteb.editions import Edition

__all__ = [
    "SETS",
    "SetBuilder",
    "build_set",
    "build_snapshot_task",
    "build_written_task",
    "chosen_options",
    "estimate_written_task",
]


@dataclass(frozen=True)
class SetBuilder:
    """Builder of a task's data.

    Attributes:
        make: Builds the data from the raw files and the options.
        options: Allowed values by option; the first one is the default.
    """

    make: Callable[[Raw, Mapping[str, str]], BuiltSet]
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


SETS: Mapping[str, SetBuilder] = {
    "MedQuADLiveQARetrieval": SetBuilder(
        medquad.build_live_qa, {"queries": tuple(medquad.QUERY_ELEMENTS), "grades": ("lower", "higher")}
    ),
    "BioASQ500SnippetsRetrieval": SetBuilder(bmretriever.build_bioasq),
    "PubMedQA500Retrieval": SetBuilder(bmretriever.build_pubmedqa),
    "BIOSSES": SetBuilder(bmretriever.build_biosses),
    "ICliniqRetrieval": SetBuilder(own_copies.build_icliniq),
    "DiseaseOntologyRetrieval": SetBuilder(bmretriever.build_disease_ontology),
    "RELISHReranking": SetBuilder(own_copies.build_relish),
    "DrugBankRetrieval": SetBuilder(own_copies.build_drugbank),
}


def build_set(
    name: str, source: Path | str, out: Path | str, options: Mapping[str, str] | None = None
) -> tuple[Edition, bool]:
    """Build the data of a task.

    The same raw files and options give the same bytes. An existing edition is compared and kept.

    Args:
        name: Name of the task, a key of `SETS`.
        source: Folder of the raw files.
        out: Root of editions; the data are written to `out/<name>`.
        options: Options of the set; the default of each is its first value.

    Returns:
        The edition, and True if it already existed.

    Raises:
        BuildError: The set or option is unknown, a raw file is missing or malformed, or the folder holds
            another edition.
    """
    if name not in SETS:
        known = [*SETS, *SNAPSHOT_TASKS]
        near = get_close_matches(name, known, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(known)}."
        raise BuildError(f"No set {name!r} can be built. {hint}")
    builder = SETS[name]
    chosen = chosen_options(name, builder.options, options or {})
    raw = Raw(Path(source).expanduser())
    built = builder.make(raw, chosen)
    return write_built(built, Path(out).expanduser(), raw.used)


def build_snapshot_task(
    name: str, source: Path | str, out: Path | str, options: Mapping[str, str] | None = None
) -> tuple[Path, dict[str, Any], bool]:
    """Build the file of a task of English MedTEB in the snapshot `out/MedTEB-eng`.

    Args:
        name: Name of the task, a key of `SNAPSHOT_TASKS`.
        source: Folder of the raw files.
        out: Root of editions.
        options: Options of the task and of the whole snapshot. Options of the snapshot that are not given
            keep their values.

    Returns:
        The file, its entry in `snapshot.json`, and True if it already existed.

    Raises:
        BuildError: See `build_set`.
        FolderError: The existing snapshot is malformed.
    """
    builder, raw = SNAPSHOT_TASKS[name], Raw(Path(source).expanduser())
    snapshot_options, task_options = _options(name, builder.options, options or {})
    rows = builder.make(raw, task_options)
    provenance = _provenance(name, builder.differs, task_options, raw)
    return write_rows(name, rows, provenance, Path(out).expanduser(), snapshot_options)


def build_written_task(
    name: str,
    source: Path | str,
    out: Path | str,
    writer: WriterSettings,
    options: Mapping[str, str] | None = None,
) -> tuple[Drafts, tuple[Path, dict[str, Any], bool] | None]:
    """Have an LLM write the texts of a task, and build its file in the snapshot `out/MedTEB-eng`.

    The same call resumes an interrupted run, and no answer is paid for twice.

    Args:
        name: Name of the task, a key of `WRITTEN_TASKS`.
        source: Folder of the raw files.
        out: Root of editions.
        writer: Settings of the LLM's requests.
        options: See `build_snapshot_task`.

    Returns:
        The written texts, and a result as of `build_snapshot_task`; None if texts are left to write.

    Raises:
        BuildError: See `build_set`; or this task has no texts of an LLM, or the LLM gave no usable answer.
    """
    task, raw = _written_task(name), Raw(Path(source).expanduser())
    snapshot_options, task_options = _options(name, task.options, options or {})
    drafts = write_drafts(name, raw, writer)
    if not drafts.made.complete:
        return drafts, None
    if not drafts.texts:
        raise BuildError(
            f"{name}: none of {drafts.written['shown']} answers can be used ({drafts.written['failed']}). "
            "Try another LLM, or ask again with --retry-failed."
        )
    rows = task.rows(drafts.texts, task_options)
    provenance = _provenance(name, task.differs, task_options, raw)
    return drafts, write_rows(
        name, rows, {**provenance, "written": dict(drafts.written)}, Path(out).expanduser(), snapshot_options
    )


def estimate_written_task(name: str, source: Path | str, writer: WriterSettings) -> Cost:
    """Estimate the requests and cost of `build_written_task`; nothing is sent.

    Raises:
        BuildError: This task has no texts of an LLM, or a raw file is missing or malformed.
    """
    _written_task(name)
    return estimate_drafts(name, Raw(Path(source).expanduser()), writer)


def _written_task(name: str) -> WrittenTask:
    if name not in WRITTEN_TASKS:
        raise BuildError(
            f"No LLM writes texts of {name}; build it without --llm. Tasks with texts of an LLM are "
            f"{', '.join(WRITTEN_TASKS)}."
        )
    return WRITTEN_TASKS[name]


def _options(
    name: str, known: Mapping[str, tuple[str, ...]], given: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the given options of the whole snapshot, and the values of all options of the task."""
    chosen = chosen_options(name, {**SnapshotOptions.allowed(), **known}, given)
    snapshot_options = {option: value for option, value in given.items() if option not in known}
    return snapshot_options, {option: chosen[option] for option in known}


def _provenance(name: str, differs: str, task_options: Mapping[str, str], raw: Raw) -> dict[str, Any]:
    return {
        "differs": differs,
        "licence": english_tasks()[name].licence,
        **({"options": dict(task_options)} if task_options else {}),
        "made_from": dict(sorted(raw.used.items())),
    }


def chosen_options(
    name: str, known: Mapping[str, tuple[str, ...]], given: Mapping[str, str]
) -> dict[str, str]:
    """Return the value of every option: the given one or the default.

    Raises:
        BuildError: An option or a value is unknown.
    """
    for option, value in given.items():
        if option not in known:
            raise BuildError(f"{name} has no option {option!r}; it has {', '.join(known) or 'none'}.")
        if value not in known[option]:
            raise BuildError(f"{name}: {option} is one of {', '.join(known[option])}; got {value!r}.")
    return {option: given.get(option, values[0]) for option, values in known.items()}
