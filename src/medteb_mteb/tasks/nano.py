"""NanoCMTEB and NanoMedical of HAKARI-Bench: tasks of the 18 published splits, and of such folders.

Each split gives a retrieval task and four reranking tasks: over the hybrid candidates with their safeguard
(`...Reranking`, the published default) and without (`...RerankingNoSafeguard`), over BM25's
(`...BM25Reranking`) and over the dense model's (`...DenseReranking`).

In the published layout the *configuration* names the table and the *split* names the task: `corpus` and
`queries` (`_id`, `text`), `qrels` (`query-id`, `corpus-id`; positives only) and the candidate lists
(`query-id`, `corpus-ids`, best first), each in `CONFIGURATION/SPLIT.parquet` or where the card says. The
figures in `nano.json` are those of the task cards of github.com/hakari-bench/hakari-bench, commit 217c872.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import mteb
from mteb.abstasks.retrieval import AbsTaskRetrieval

from mar_st.errors import MarError
from medteb_mteb.abstasks import LocalTask, copy_of
from medteb_mteb.folders.content import TaskFolder, collect_retrieval
from medteb_mteb.folders.layout import (
    BM25,
    HYBRID,
    FolderError,
    FolderSettings,
    Layout,
    Problems,
    config_files,
    config_names,
    is_nano,
    splits_of,
)
from medteb_mteb.folders.tasks import load_into, task_from_folder
from medteb_mteb.measures import ranked
from medteb_mteb.tasks.public import UNPINNED
from medteb_mteb.tasks.tables import make_task, metadata, table

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from medteb_mteb.folders.tasks import FolderTask

TABLES = ("corpus", "queries", "qrels")
#: Name of the published dense candidate list, and the length of a hybrid list before its safeguard.
DENSE = "harrier_oss_v1_270m"
HYBRID_SIZE = 100
REFERENCE = "https://arxiv.org/abs/2606.22778"


def nano_scores(
    rankings: Mapping[str, Sequence[str]], qrels: Mapping[str, Collection[str]]
) -> dict[str, float]:
    """Return scores whose denominators are not those of mteb.

    `recall_micro_at_k` is the number of positives among the first k, of all queries together, over the number
    of all positives; `map_capped_at_100` is the mean over queries of the sum of the precision at each
    positive up to rank 100, over min(positives, 100).

    Args:
        rankings: Documents by query, best first.
        qrels: Positive documents by query.
    """
    ranks = {
        query: [rank for rank, one in enumerate(rankings.get(query, ())[:100], 1) if one in positives]
        for query, positives in qrels.items()
    }
    total = sum(map(len, qrels.values()))
    scores = {
        f"recall_micro_at_{k}": sum(r <= k for one in ranks.values() for r in one) / total for k in (10, 100)
    }
    precisions = (
        sum(number / rank for number, rank in enumerate(ranks[query], 1)) / min(len(positives), 100)
        for query, positives in qrels.items()
    )
    return {**scores, "map_capped_at_100": sum(precisions) / len(qrels)}


class Variant(NamedTuple):
    """Choice of the documents that a task on a split ranks.

    Attributes:
        suffix: Suffix of the task's name.
        candidates: Name of the candidate list; empty for the whole corpus.
        safeguard: Keep the candidate at rank 101 of hybrid lists.
        about: End of the description's first sentence.
    """

    suffix: str
    candidates: str
    safeguard: bool
    about: str


_FUSED = "over 100 candidates fused from BM25 and a dense model; "
VARIANTS = (
    Variant("Retrieval", "", True, "over the whole corpus of the split"),
    Variant(
        "Reranking",
        HYBRID,
        True,
        f"{_FUSED}where none of them is relevant, one relevant document is a 101st (the safeguard)",
    ),
    Variant("RerankingNoSafeguard", HYBRID, False, f"{_FUSED}queries without a relevant candidate score 0"),
    Variant("BM25Reranking", BM25, True, "over BM25's candidates, up to 500"),
    Variant("DenseReranking", DENSE, True, "over the candidates of a dense model, up to 500"),
)


class NanoTask(LocalTask, AbsTaskRetrieval):
    """Retrieval or reranking on one split of a Nano set.

    The data come from a folder in the published layout (the task's own, or `$MEDTEB_DATA/<set>/` if it holds
    the split), else from the Hub. Beside mteb's scores, the results hold those of `nano_scores`.
    """

    set_name: ClassVar[str]
    split: ClassVar[str]
    variant: ClassVar[Variant]

    @property
    def copy_name(self) -> str:
        """Return the name of the copy's folder in `$MEDTEB_DATA`: the set's."""
        return self.set_name

    def find(self) -> Path | None:
        """Return the task's folder, or the copy of the set if it holds the split."""
        copy = type(self).folder or copy_of(self.set_name)
        return (
            copy
            if copy is not None and any(config_files(copy, name, self.split) for name in TABLES)
            else None
        )

    @property
    def _names(self) -> dict[str, str]:
        """Return the configurations of the task's tables, by their role in a folder."""
        lists = {"top_ranked": self.variant.candidates} if self.variant.candidates else {}
        return {**{name: name for name in TABLES}, **lists}

    def _layout(self, folder: Path, tables: dict[str, list[Path]]) -> Layout:
        return Layout(folder, self.split, tables, FolderSettings(), [], None, None)

    def _in_folder(self, folder: Path) -> Layout:
        tables = {role: config_files(folder, name, self.split) for role, name in self._names.items()}
        if missing := [self._names[role] for role, files in tables.items() if not files]:
            message = f"no {missing[0]} for split {self.split!r}; expected {missing[0]}/{self.split}.parquet"
            raise FolderError(folder, [message])
        return self._layout(folder, tables)

    def describe(self, folder: Path) -> dict[str, Any]:
        """Return the digest of the task's tables; other splits of the folder do not change it."""
        return {"revision": self._in_folder(folder).revision()}

    def read(self, folder: Path) -> None:
        """Read the split of a folder and check it."""
        self._take(self._in_folder(folder))

    def fetch(self, num_proc: int | None, **kwargs: Any) -> None:
        """Read the split of the Hub and check it."""
        del num_proc, kwargs
        hub = "hub:{path}@{revision}".format_map(self.metadata.dataset)
        tables = {role: [Path(f"{hub}:{name}:{self.split}")] for role, name in self._names.items()}
        try:
            self._take(self._layout(Path(self.metadata.dataset["path"]), tables))
        except MarError as error:
            raise self._unavailable(error) from error

    def _take(self, layout: Layout) -> None:
        problems = Problems(layout.path)
        data = collect_retrieval(layout, problems)
        problems.raise_if_any()
        load_into(self, TaskFolder(layout, self.metadata.type, "", data, {}))  # type: ignore[arg-type]
        most = None if self.variant.safeguard else HYBRID_SIZE
        content = self.dataset["default"][self.split]
        if lists := content["top_ranked"]:
            content["top_ranked"] = {query: _shuffled(query, rows[:most]) for query, rows in lists.items()}

    def task_specific_scores(
        self, scores: Any, qrels: Any, results: dict[str, dict[str, float]], hf_split: str, hf_subset: str
    ) -> dict[str, float]:
        """Return the scores of `nano_scores`."""
        theirs = super().task_specific_scores(scores, qrels, results, hf_split, hf_subset)
        positives = {q: [one for one, score in row.items() if score > 0] for q, row in qrels.items()}
        return theirs | nano_scores({query: ranked(row) for query, row in results.items()}, positives)


def _shuffled(query: str, candidates: Iterable[str]) -> list[str]:
    """Return the candidates in an order independent of their ranks, which a reranker could exploit."""
    return sorted(candidates, key=lambda one: hashlib.sha256(f"{query}\0{one}".encode()).digest())


def _published(name: str, hub: str, split: str, row: Mapping[str, Any], variant: Variant) -> type[NanoTask]:
    """Return a task of a published split; its metadata are the source task's, as sampling changed them."""
    source = mteb.get_task(row["task"]).metadata
    origin = f"the source of {row['task']}; its card names no data set and no revision"
    if row["source"]:
        origin = f"{row['source']} at {row['source_revision']}, split {row['source_split']}"
    same = (
        "date",
        "domains",
        "task_subtypes",
        "license",
        "annotations_creators",
        "dialect",
        "sample_creation",
    )
    prompt = {"query": source.prompt} if isinstance(source.prompt, str) else source.prompt
    of = metadata(
        f"{name}{row['stem']}{variant.suffix}",
        hub,
        UNPINNED,
        "hakari",
        source.bibtex_citation,
        description=(
            f"Split {split} of {name} (HAKARI-Bench): {row['queries']} queries, {row['documents']:,} "
            f"documents, {variant.about}. Sampled from {origin}. The revision of {hub} is not pinned: no "
            "source gives one."
        ),
        reference=REFERENCE,
        type="Reranking" if variant.candidates else "Retrieval",
        eval_splits=[split],
        eval_langs=[row["language"]],
        main_score="ndcg_at_10",
        prompt=prompt,
        adapted_from=[row["task"]],
        contributed_by="HAKARI-Bench",
        **{key: getattr(source, key) for key in same},
    )
    return make_task(of, NanoTask, set_name=name, split=split, variant=variant)


NANO_TASKS = tuple(
    _published(name, nano["hub"], split, row, variant)
    for name, nano in table("nano").items()
    for split, row in nano["splits"].items()
    for variant in VARIANTS
)


def nano_tasks_from_folder(folder: Path | str) -> list[NanoTask]:
    """Make the tasks of every split of a folder in the published layout.

    Their names begin with the folder's name and the split's. There is a task for every candidate list of
    a split, and for hybrid lists one more without the safeguards.

    Raises:
        FolderError: The folder does not have that layout.
    """
    folder = Path(folder).expanduser().absolute()
    if not folder.is_dir() or not splits_of(folder):
        raise FolderError(folder, ["expected a Nano set: corpus, queries and qrels, each with SPLIT.parquet"])
    tasks: list[NanoTask] = []
    for split in splits_of(folder):
        others = [name for name in config_names(folder) if name not in TABLES]
        lists = [name for name in others if config_files(folder, name, split)]
        variants = [one for one in VARIANTS if not one.candidates or one.candidates in {*lists} - {DENSE}]
        variants += [
            Variant(f"{name}-Reranking", name, True, f"over the candidates of {name}")
            for name in lists
            if name not in (BM25, HYBRID)
        ]
        for variant in variants:
            of = metadata(
                f"{folder.name}-{split}-{variant.suffix}",
                folder.as_posix(),
                "local",
                description=f"Split {split} of the Nano set in {folder.name}, {variant.about}.",
                type="Reranking" if variant.candidates else "Retrieval",
                domains=None,
                dialect=None,
                eval_splits=[split],
                eval_langs=["und-Zyyy"],
                main_score="ndcg_at_10",
                is_public=False,
            )
            made = make_task(of, NanoTask, set_name=folder.name, split=split, variant=variant, folder=folder)
            tasks.append(made())
    return tasks


def tasks_from_folders(folders: Iterable[Path | TaskFolder]) -> list[FolderTask | NanoTask]:
    """Return one task per folder, in order; for a Nano set, all tasks of all its splits.

    Args:
        folders: The folders, or what `read_folder` returned for them.

    Raises:
        FolderError: A folder is unusable, or two folders have the same task name.
    """
    tasks: dict[str, FolderTask | NanoTask] = {}
    for folder in folders:
        of_folder: Sequence[FolderTask | NanoTask]
        if isinstance(folder, Path) and is_nano(folder):
            of_folder = nano_tasks_from_folder(folder)
        else:
            of_folder = [task_from_folder(folder)]
        for task in of_folder:
            if (name := task.metadata.name) in tasks:
                message = (
                    f"has the same task name {name!r} as {tasks[name].folder}; rename one folder, or give "
                    "it a name in its README header: `medteb: {name: ...}`"
                )
                raise FolderError(task.folder or Path(), [message])
            tasks[name] = task
    return list(tasks.values())
