"""All input of the checks, read once and safely."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.labels.grades import read_judgements
from medteb_mteb.curation.labels.sheet import read_experts
from medteb_mteb.curation.texts.split import QUERY_SIMILARITY, clusters
from medteb_mteb.curation.training import training_texts
from medteb_mteb.editions import MANIFEST_NAME, leads_outside
from medteb_mteb.folders import FolderError, Problems, collect_retrieval, detect_type, query_field
from medteb_mteb.folders.layout import inspect_folder
from medteb_mteb.measures import QueryScores, score_queries
from medteb_mteb.validate.places import Places, read_places
from medteb_mteb.validate.ranks import Ranks, read_ranks
from medteb_mteb.validate.runs import BASELINE, read_runs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from medteb_mteb.curation.labels.grades import Judgement
    from medteb_mteb.curation.labels.sheet import Experts
    from medteb_mteb.folders import RetrievalData
    from medteb_mteb.folders.layout import Layout

__all__ = ["Material", "Sources", "read_material"]

#: A larger table is refused: all of it is held in memory.
MAX_TABLE_BYTES = 4 * 2**30
#: The same for the card and the manifest.
MAX_TEXT_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Sources:
    """Optional inputs of a validation beside the folder.

    Attributes:
        runs: Files of runs, or names of lexical baselines.
        pools: Pools of `medteb pool`, a file or folder; or None.
        judgements: Judgements of `medteb judge`, a file or folder; or None.
        second: Judgements of the same judges in a second round; or None.
        review: Sheet of `medteb review`; or None.
        answered: Copies of the sheet filled in by experts.
        decided: Filled-in sheet of the experts' disagreements; or None.
        against: Training sets that must not contain test data.
        by: Fields of the queries by which to compare scores.
        split: The split to check.
    """

    runs: Sequence[str] = (BASELINE,)
    pools: Path | None = None
    judgements: Path | None = None
    second: Path | None = None
    review: Path | None = None
    answered: Sequence[Path] = ()
    decided: Path | None = None
    against: Sequence[str] = ()
    by: Sequence[str] = ()
    split: str = "test"


@dataclass(frozen=True)
class Material:
    """An edition and what belongs to it.

    Attributes:
        layout: Paths of the tables, and the content of card and manifest.
        kind: `Retrieval` or `Reranking`.
        data: The content; unusable rows are left out and recorded.
        problems: The unusable rows.
        qrels: Positives by query: pairs whose query and document exist.
        runs: Scores by run, query and document.
        ranks: Ranks of the retrievers in the pools, or None.
        judgements: Judgements of the edition's queries, or None.
        second: Judgements of the same judges in a second round, or None.
        places: Places of the judged passages in their prompts, or None.
        second_places: Places in the second round, or None.
        training: Texts of the training sets, or None.
        experts: Experts' answers on the pairs that they checked, or None.
        fields: Values by query of each field by which to compare scores.
    """

    layout: Layout
    kind: str
    data: RetrievalData
    problems: Problems
    qrels: dict[str, dict[str, int]]
    runs: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)
    ranks: Ranks | None = None
    judgements: tuple[Judgement, ...] | None = None
    second: tuple[Judgement, ...] | None = None
    places: Places | None = None
    second_places: Places | None = None
    training: tuple[str, ...] | None = None
    experts: Experts | None = None
    fields: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @cached_property
    def scores(self) -> dict[str, dict[str, QueryScores]]:
        """Return the scores by run and query, of the queries that have a positive."""
        return {name: score_queries(self.qrels, self.data.judged, run) for name, run in self.runs.items()}

    @cached_property
    def clusters(self) -> dict[str, int]:
        """Return the number of the cluster of near-duplicates of every query."""
        names = [row["id"] for row in self.data.queries]
        groups = clusters([row["text"] for row in self.data.queries], threshold=QUERY_SIMILARITY)
        return {names[row]: number for number, group in enumerate(groups) for row in group}

    def problems_of(self, *kinds: str) -> int:
        """Return the number of rows with problems of some kinds."""
        return sum(number for kind, number in self.problems.counts.items() if kind in kinds)


def read_material(folder: Path, sources: Sources) -> Material:
    """Read a folder and the material to compare with it.

    Args:
        folder: An edition, or any retrieval or reranking folder in the Hub layout.
        sources: Further sources to check.

    Raises:
        FolderError: The folder is unusable, of another type, or a link leads out of it.
        BuildError: Pools, judgements or training sets are unusable.
        MarError: A run cannot be read, or belongs to other queries or documents.
    """
    _check_texts(folder)
    layout = inspect_folder(folder, sources.split, check_manifest=False)
    if "corpus" not in layout.tables:
        raise FolderError(layout.path, ["holds no corpus; validate looks at retrieval and reranking folders"])
    _check_tables(layout)
    problems = Problems(layout.path)
    data = collect_retrieval(layout, problems)
    if not data.corpus or not data.queries:
        problems.raise_if_any()
        raise FolderError(layout.path, ["holds no query with judgements"])
    queries, documents = {row["id"] for row in data.queries}, {row["id"] for row in data.corpus}
    qrels = {
        query: {d: score for d, score in row.items() if score > 0 and d in documents}
        for query, row in data.qrels.items()
        if query in queries
    }
    return Material(
        layout=layout,
        kind=detect_type(layout),
        data=data,
        problems=problems,
        qrels={query: row for query, row in qrels.items() if row},
        runs=read_runs(sources.runs, data),
        ranks=None if sources.pools is None else read_ranks(sources.pools, queries, documents),
        judgements=_judgements(sources.judgements, queries),
        second=_judgements(sources.second, queries),
        places=None if sources.judgements is None else read_places(sources.judgements, queries),
        second_places=None if sources.second is None else read_places(sources.second, queries),
        training=_training(sources.against),
        experts=_experts(sources),
        fields={name: query_field(layout, name) for name in sources.by},
    )


def _check_texts(folder: Path) -> None:
    """Refuse a card or manifest that is not a regular file of this folder, before it is opened."""
    for path in (folder / "README.md", folder / MANIFEST_NAME):
        if not path.exists() and not path.is_symlink():
            continue
        if not path.is_file():
            raise FolderError(folder, [f"{path.name} is not a regular file"])
        _check_file(folder, path, MAX_TEXT_BYTES)


def _check_tables(layout: Layout) -> None:
    for files in layout.tables.values():
        for file in files:
            _check_file(layout.path, file, MAX_TABLE_BYTES)


def _check_file(folder: Path, path: Path, most: int) -> None:
    if leads_outside(path, folder):
        raise FolderError(folder, [f"{path.name} is a symbolic link out of the folder; put the file there"])
    if (size := path.stat().st_size) > most:
        message = f"{path.name} has {size:,} bytes; at most {most:,} are read. Validate a part of the data"
        raise FolderError(folder, [message])


def _judgements(source: Path | None, queries: set[str]) -> tuple[Judgement, ...] | None:

    if source is None:
        return None
    return tuple(one for one in read_judgements(source) if one.query_id in queries)


def _experts(sources: Sources) -> Experts | None:

    if (sources.review is None) != (not sources.answered):
        raise BuildError(
            "Give the sheet (--review) and the files that experts filled in (--answered) together."
        )
    if sources.review is None:
        if sources.decided is not None:
            raise BuildError("Decisions (--decided) belong to a sheet; give --review and --answered too.")
        return None
    return read_experts(sources.review, sources.answered, sources.decided)


def _training(sources: Sequence[str]) -> tuple[str, ...] | None:

    if not sources:
        return None
    return tuple(text for source in sources for text in training_texts(source))
