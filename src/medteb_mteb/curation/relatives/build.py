"""Builds the data of a task from a folder of raw files."""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.relatives import bmretriever, medquad, own_copies
from medteb_mteb.curation.relatives.english import SNAPSHOT_TASKS, write_task
from medteb_mteb.curation.relatives.raw import Raw
from medteb_mteb.curation.relatives.write import write_built
from medteb_mteb.english.snapshot import Options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from medteb_mteb.curation.relatives.write import BuiltSet
    from medteb_mteb.editions import Edition

__all__ = ["SETS", "SetBuilder", "build_set", "build_snapshot_task", "chosen_options"]


@dataclass(frozen=True)
class SetBuilder:
    """How a task's data are made.

    Attributes:
        make: Makes the data of the raw files and the options.
        options: Allowed values by option; the first one is the default.
    """

    make: Callable[[Raw, Mapping[str, str]], BuiltSet]
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


SETS: Mapping[str, SetBuilder] = {
    "MedQuADLiveQARetrieval": SetBuilder(
        medquad.build_live_qa, {"queries": tuple(medquad.QUERIES), "grades": ("lower", "higher")}
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

    The same raw files and options give the same bytes. What was built before is compared and kept.

    Args:
        name: Name of the task, one of `SETS`.
        source: Folder of the raw files.
        out: Root of editions; the data are written to `out/<name>`.
        options: Options of the set; default the first value of each.

    Returns:
        The edition, and True if it was there already.

    Raises:
        BuildError: The set or option is unknown, a raw file is missing or malformed, or another edition is
            there.
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
        name: Name of the task, one of `SNAPSHOT_TASKS`.
        source: Folder of the raw files.
        out: Root of editions.
        options: Options of the task, and of the whole snapshot; of the latter those that are not given stay
            as they are there.

    Returns:
        The file, what `snapshot.json` says of it, and True if it was there already.

    Raises:
        BuildError: As `build_set`.
        FolderError: The snapshot that is there is malformed.
    """
    given, known = options or {}, SNAPSHOT_TASKS[name].options
    chosen = chosen_options(name, {**Options.allowed(), **known}, given)
    shared = {option: value for option, value in given.items() if option not in known}
    own = {option: chosen[option] for option in known}
    return write_task(name, Raw(Path(source).expanduser()), Path(out).expanduser(), shared, own)


def chosen_options(
    name: str, known: Mapping[str, tuple[str, ...]], given: Mapping[str, str]
) -> dict[str, str]:
    """Return the value of every option: the given one or the default.

    Raises:
        BuildError: An option or a value is not known.
    """
    for option, value in given.items():
        if option not in known:
            raise BuildError(f"{name} has no option {option!r}; it has {', '.join(known) or 'none'}.")
        if value not in known[option]:
            raise BuildError(f"{name}: {option} is one of {', '.join(known[option])}; got {value!r}.")
    return {option: given.get(option, values[0]) for option, values in known.items()}
