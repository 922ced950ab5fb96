"""Makes mteb tasks from data folders."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar, cast, get_args

from datasets import Dataset, DatasetDict
from mteb.abstasks import (
    AbsTask,
    AbsTaskClassification,
    AbsTaskClustering,
    AbsTaskPairClassification,
    AbsTaskRetrieval,
    AbsTaskSTS,
)
from mteb.abstasks.clustering_legacy import AbsTaskClusteringLegacy
from mteb.abstasks.task_metadata import TaskDomain, TaskMetadata
from mteb.types import Licenses

from medteb_mteb.abstasks.judged import JudgedRetrieval
from medteb_mteb.abstasks.statistics import LocalMetadata, LocalStatistics
from medteb_mteb.folders.languages import eval_languages
from medteb_mteb.folders.layout import Layout, inspect_folder
from medteb_mteb.folders.problems import FolderError, Problems
from medteb_mteb.folders.reader import TaskFolder, detect_type, read_folder
from medteb_mteb.folders.rows import read_rows

if TYPE_CHECKING:
    from pathlib import Path

    from mteb.abstasks.retrieval_dataset_loaders import RetrievalSplitData
    from mteb.timing import TimingStack

    from medteb_mteb.folders.settings import TaskType

__all__ = ["FolderTask", "load_into", "task_from_folder"]

# The published instructions of MedTEB (ICLR 2026 submission 20011, table 8).
_RETRIEVAL_PROMPT = "Given a Chinese medical question, retrieve medical documents that answer the question."
_RERANKING_PROMPT = (
    "Based on a Chinese medical question, evaluate and rank the medical information that provide answers to "
    "the question."
)
_STS_PROMPT = "Retrieve semantically similar text."

_PROMPTS: dict[str, str | dict[str, str]] = {
    "Retrieval": {"query": _RETRIEVAL_PROMPT},
    "Reranking": {"query": _RERANKING_PROMPT},
    "STS": _STS_PROMPT,
}
_MAIN_SCORES: dict[TaskType, str] = {
    "Retrieval": "ndcg_at_10",
    "Reranking": "map_at_1000",
    "STS": "cosine_spearman",
    "PairClassification": "max_ap",
    "Classification": "accuracy",
    "Clustering": "v_measure",
}
_DISTANCES = "cosine|manhattan|euclidean"
_KNOWN_SCORES: dict[TaskType, str] = {
    "Retrieval": r"(ndcg|map|mrr|recall|precision|hit_rate)_at_(1|3|5|10|20|100|1000)",
    "Reranking": r"(ndcg|map|mrr|recall|precision|hit_rate)_at_(1|3|5|10|20|100|1000)",
    "STS": rf"(({_DISTANCES})_)?(pearson|spearman)",
    "PairClassification": rf"(max|similarity|{_DISTANCES}|dot)_(ap|f1|accuracy|precision|recall)",
    "Classification": r"accuracy|(f1|precision|recall)(_weighted)?",
    "Clustering": r"v_measure",
}


class FolderTask(LocalStatistics):
    """Mixin of the generated task classes: loads from ``folder``, never from the Hub or a cache."""

    folder: ClassVar[Path]
    # Results saved for other data are never reused (see registry).
    revision_matters = True

    def load_data(
        self, num_proc: int | None = None, *, timer: TimingStack | None = None, **kwargs: Any
    ) -> None:
        """Read and check the folder; does nothing if that has been done.

        Raises:
            FolderError: If the data has problems, or changed since the task was made.
        """
        del num_proc, timer, kwargs  # a checked read of local files takes no options
        if self.data_loaded:
            return
        split = self.metadata.eval_splits[0]
        folder = read_folder(self.folder, split)
        if folder.revision != self.metadata.revision:
            raise FolderError(
                self.folder, ["the data changed since the task was made; make the task again from the folder"]
            )
        load_into(self, folder)


class _ClusteringOfAllRows(AbsTaskClustering):
    # mteb's default embeds 4 % of the rows, which is meant for its very large sets.
    max_fraction_of_documents_to_embed = None


_BASES: dict[TaskType, type[AbsTask]] = {
    "Retrieval": JudgedRetrieval,
    "Reranking": JudgedRetrieval,
    "STS": AbsTaskSTS,
    "PairClassification": AbsTaskPairClassification,
    "Classification": AbsTaskClassification,
    "Clustering": _ClusteringOfAllRows,
}


def load_into(task: AbsTask, folder: TaskFolder | Path | str) -> None:
    """Fills ``task.dataset`` with a folder's content and marks the task as loaded.

    The columns are named as the task's class names them. The data sets live in memory only.

    Args:
        task: A task of any of the six types.
        folder: Result of :func:`read_folder`, or the folder from which to read the task's first eval split.

    Raises:
        FolderError: If the data has problems, or has another task type than the task.
    """
    if not isinstance(folder, TaskFolder):
        folder = read_folder(folder, task.metadata.eval_splits[0])
    if task.metadata.type != folder.type:
        raise FolderError(
            folder.layout.path,
            [f"is of type {folder.type}, but {task.metadata.name} is of type {task.metadata.type}"],
        )
    if folder.retrieval is not None:
        data = folder.retrieval
        split: RetrievalSplitData = {
            "corpus": Dataset.from_list(data.corpus),
            "queries": Dataset.from_list(data.queries),
            # Copies: mteb filters these in place.
            "relevant_docs": {query: dict(documents) for query, documents in data.qrels.items()},
            "top_ranked": {q: list(ids) for q, ids in data.top_ranked.items()} if data.top_ranked else None,
        }
        cast("AbsTaskRetrieval", task).dataset = {"default": {folder.split: split}}
        if isinstance(task, JudgedRetrieval):
            task.judged = data.judged
    else:
        names = _column_names(task)
        task.dataset = DatasetDict(
            {
                name: Dataset.from_list([{names.get(key, key): row[key] for key in row} for row in rows])
                for name, rows in folder.records.items()
            }
        )
    if isinstance(task, AbsTaskSTS):
        scores = [row["score"] for row in folder.records[folder.split]]
        # Only used to map scores to 0..1, which does not change correlations.
        task.min_score, task.max_score = min(scores), max(scores)
    task.data_loaded = True


def _column_names(task: AbsTask) -> dict[str, str]:
    pairs: list[tuple[str, object]] = []
    if isinstance(task, AbsTaskSTS):
        pairs = [("sentence1", task.column_names[0]), ("sentence2", task.column_names[1])]
    elif isinstance(task, AbsTaskPairClassification):
        pairs = [
            ("sentence1", task.input1_column_name),
            ("sentence2", task.input2_column_name),
            ("label", task.label_column_name),
        ]
    elif isinstance(task, AbsTaskClassification):
        pairs = [("text", task.input_column_name), ("label", task.label_column_name)]
    elif isinstance(task, (AbsTaskClustering, AbsTaskClusteringLegacy)):
        pairs = [("sentences", task.input_column_name), ("labels", task.label_column_name)]
    return {ours: theirs for ours, theirs in pairs if isinstance(theirs, str)}


def task_from_folder(path: Path | str, name: str | None = None, split: str = "test") -> FolderTask:
    """Make a task from a folder in the Hub layout; the data is read when the task is loaded.

    The instance's class can be constructed without arguments, as a registry of tasks requires.
    ``dataset["revision"]`` is the edition's digest if there is a manifest, else a digest of the contents, so
    results of changed data are never confused with those of these data.

    Args:
        path: The folder.
        name: Task name; otherwise the manifest's, the README header's, or the folder's base name.
        split: The split to evaluate.

    Raises:
        FolderError: If the folder's tables or declarations are missing or malformed.
    """
    layout = inspect_folder(path, split)
    kind = detect_type(layout)
    name = layout.name if name is None else name
    if not name or re.search(r"[/\\\x00-\x1f]|^\.", name):
        raise FolderError(layout.path, [f"{name!r} cannot be a task name; pass another one"])
    base = _BASES[kind]
    if kind == "Clustering" and _is_nested(layout):
        base = AbsTaskClusteringLegacy
    metadata = _metadata(layout, kind, name)
    attributes = {
        "metadata": metadata,
        "folder": layout.path,
        "__doc__": metadata.description,
        "__module__": __name__,
    }
    class_name = re.sub(r"\W", "_", name)
    task_class = type(class_name, (FolderTask, base), attributes)
    return cast("FolderTask", task_class())


def _is_nested(layout: Layout) -> bool:

    rows = read_rows(layout.tables["rows"][:1], Problems(layout.path))
    return bool(rows) and isinstance(rows[0].values.get("sentences"), list)


def _metadata(layout: Layout, kind: TaskType, name: str) -> TaskMetadata:
    settings = layout.settings
    main_score = settings.main_score or _MAIN_SCORES[kind]
    if not re.fullmatch(_KNOWN_SCORES[kind], main_score):
        raise FolderError(
            layout.path,
            [f"main_score {main_score!r} is not a score of {kind} tasks; try {_MAIN_SCORES[kind]!r}"],
        )
    if unknown := set(settings.domains or []) - set(get_args(TaskDomain)):
        raise FolderError(
            layout.path, [f"unknown domains {sorted(unknown)}; mteb knows {get_args(TaskDomain)}"]
        )
    prompt = settings.prompt if settings.prompt is not None else _PROMPTS.get(kind)
    if isinstance(prompt, str) and kind in ("Retrieval", "Reranking"):
        prompt = {"query": prompt}  # instructions are for queries, as published
    licence = (layout.licence or "").lower()
    values: dict[str, Any] = {
        "name": name,
        "description": settings.description
        or f"{kind} over the data of the local folder {layout.path.name}.",
        "type": kind,
        "category": "t2c" if kind in ("Classification", "Clustering") else "t2t",
        "dataset": {"path": layout.path.as_posix(), "revision": layout.revision()},
        "eval_splits": [layout.split],
        "eval_langs": eval_languages(layout),
        "main_score": main_score,
        "prompt": prompt,
        "domains": settings.domains,
        "license": licence if licence in get_args(Licenses) else "not specified",
        "is_public": False,
    }
    return LocalMetadata.in_folder(layout.path, values)
