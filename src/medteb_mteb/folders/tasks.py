"""Makes mteb tasks from data folders."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any, cast, get_args

from datasets import Dataset, DatasetDict
from mteb.abstasks import (
    AbsTask,
    AbsTaskClassification,
    AbsTaskClustering,
    AbsTaskPairClassification,
    AbsTaskRetrieval,
    AbsTaskSTS,
)
from mteb.languages import check_language_code
from mteb.types import Licenses

from medteb_mteb.abstasks import JudgedRetrieval, LocalMetadata, LocalTask
from medteb_mteb.folders.content import TaskFolder, detect_type, read_folder
from medteb_mteb.folders.layout import FolderError, Layout, inspect_folder

if TYPE_CHECKING:
    from pathlib import Path

    from medteb_mteb.folders.layout import TaskType

logger = logging.getLogger(__name__)

# The published instructions of MedTEB (ICLR 2026 submission 20011, table 8).
_PROMPTS: dict[str, str | dict[str, str]] = {
    "Retrieval": {
        "query": "Given a Chinese medical question, retrieve medical documents that answer the question."
    },
    "Reranking": {
        "query": "Based on a Chinese medical question, evaluate and rank the medical information that "
        "provide answers to the question."
    },
    "STS": "Retrieve semantically similar text.",
}
_RANKING = r"(ndcg|map|mrr|recall|precision|hit_rate)_at_(1|3|5|10|20|100|1000)"
_DISTANCES = "cosine|manhattan|euclidean"
#: Main score of each type, and a pattern of the scores that a card may choose.
_SCORES: dict[TaskType, tuple[str, str]] = {
    "Retrieval": ("ndcg_at_10", _RANKING),
    "Reranking": ("map_at_1000", _RANKING),
    "STS": ("cosine_spearman", rf"(({_DISTANCES})_)?(pearson|spearman)"),
    "PairClassification": ("max_ap", rf"(max|similarity|{_DISTANCES}|dot)_(ap|f1|accuracy|precision|recall)"),
    "Classification": ("accuracy", r"accuracy|(f1|precision|recall)(_weighted)?"),
    "Clustering": ("v_measure", r"v_measure"),
}
UNKNOWN_LANGUAGE = "und-Zyyy"
_LANGUAGES = {
    "zh": "cmn-Hans", "zho": "cmn-Hans", "cmn": "cmn-Hans", "zh-cn": "cmn-Hans", "zh-hans": "cmn-Hans",
    "zh-tw": "cmn-Hant", "zh-hk": "cmn-Hant", "zh-hant": "cmn-Hant", "en": "eng-Latn", "eng": "eng-Latn",
    "de": "deu-Latn", "fr": "fra-Latn", "es": "spa-Latn", "pt": "por-Latn", "it": "ita-Latn",
    "ja": "jpn-Jpan", "ko": "kor-Hang", "ru": "rus-Cyrl", "ar": "arb-Arab", "vi": "vie-Latn",
}  # fmt: skip


class FolderTask(LocalTask):
    """A task that reads a folder in the Hub layout: its own, or `$MEDTEB_DATA/<task>/` if there is one.

    Attributes:
        content: Content of the folder, if it was read before the task was made; it is given up when used.
    """

    content: TaskFolder | None = None

    def describe(self, folder: Path) -> dict[str, Any]:
        """Return the digest of the folder's data and settings."""
        return {"revision": inspect_folder(folder, type(self).metadata.eval_splits[0]).revision()}

    def read(self, folder: Path) -> None:
        """Check the folder and read it."""
        content, self.content = self.content, None
        load_into(self, content or read_folder(folder, self.metadata.eval_splits[0]))


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
    """Fill `task.dataset` with a folder's content and mark the task as loaded.

    The columns have the names of mteb's classes. The data sets live in memory only.

    Args:
        task: A task of any of the six types.
        folder: Result of `read_folder`, or the folder from which to read the task's first eval split.

    Raises:
        FolderError: The data has problems, or has another task type than the task.
    """
    if not isinstance(folder, TaskFolder):
        folder = read_folder(folder, task.metadata.eval_splits[0])
    path, split = folder.layout.path, folder.layout.split
    if task.metadata.type != folder.type:
        message = f"is of type {folder.type}, but {task.metadata.name} is of type {task.metadata.type}"
        raise FolderError(path, [message])
    if folder.retrieval is not None:
        _load_retrieval(cast("AbsTaskRetrieval", task), folder)
    else:
        sets = {name: Dataset.from_list(rows) for name, rows in folder.records.items()}
        if isinstance(task, AbsTaskPairClassification):
            sets = {name: rows.rename_column("label", task.label_column_name) for name, rows in sets.items()}
        task.dataset = DatasetDict(sets)
    if isinstance(task, AbsTaskSTS):
        scores = [row["score"] for row in folder.records[split]]
        # Only used to map scores to 0..1, which does not change correlations.
        task.min_score, task.max_score = min(scores), max(scores)
    task.data_loaded = True


def _load_retrieval(task: AbsTaskRetrieval, folder: TaskFolder) -> None:
    data, settings = folder.retrieval, folder.layout.settings
    assert data is not None  # noqa: S101 -- checked by the caller
    lists = {query: list(ids) for query, ids in data.top_ranked.items()} if data.top_ranked else None
    task.dataset = {
        "default": {
            folder.layout.split: {
                "corpus": Dataset.from_list(data.corpus),
                "queries": Dataset.from_list(data.queries),
                # Copies: mteb filters these in place.
                "relevant_docs": {query: dict(documents) for query, documents in data.qrels.items()},
                "top_ranked": lists,
            }
        }
    }
    if settings.ignore_identical_ids:
        task.ignore_identical_ids = True
    else:
        texts = {row["id"]: row["text"] for row in data.corpus}
        same = [row["id"] for row in data.queries if texts.get(row["id"]) == row["text"]]
        if same:
            logger.warning(
                "%s: %d queries are documents of the corpus with the same id and text, such as %r; each "
                "finds itself. To leave it out of its ranking, write `medteb: {ignore_identical_ids: true}` "
                "in the header of README.md.",
                folder.layout.path,
                len(same),
                same[0],
            )
    if isinstance(task, JudgedRetrieval):
        task.judged = folder.judged


def task_from_folder(
    path: Path | str | TaskFolder, name: str | None = None, split: str = "test"
) -> FolderTask:
    """Make a task from a folder in the Hub layout; the data is read when the task is loaded.

    The instance's class can be constructed without arguments, as a registry of tasks requires.
    `dataset["revision"]` is the edition's digest if there is a manifest, else a digest of the contents, so
    results of changed data are never confused with those of these data.

    Args:
        path: The folder, or what `read_folder` returned for it.
        name: Task name; otherwise the manifest's, the README header's, or the folder's base name.
        split: The split to evaluate.

    Raises:
        FolderError: The folder's tables or declarations are missing or malformed.
    """
    if isinstance(path, TaskFolder):
        content, layout, kind = path, path.layout, path.type
    else:
        content, layout = None, inspect_folder(path, split)
        kind = detect_type(layout)
    name = layout.name if name is None else name
    if not name or re.search(r"[/\\\x00-\x1f]|^\.", name):
        raise FolderError(layout.path, [f"{name!r} cannot be a task name; pass another one"])
    base = _BASES[kind]
    metadata = _metadata(layout, kind, name)
    attributes = {
        "metadata": metadata,
        "folder": layout.path,
        "__doc__": metadata.description,
        "__module__": __name__,
    }
    task: FolderTask = type(re.sub(r"\W", "_", name), (FolderTask, base), attributes)()
    task.content = content
    return task


def _metadata(layout: Layout, kind: TaskType, name: str) -> LocalMetadata:
    settings = layout.settings
    usual, known = _SCORES[kind]
    main_score = settings.main_score or usual
    if not re.fullmatch(known, main_score):
        message = f"main_score {main_score!r} is not a score of {kind} tasks; try {usual!r}"
        raise FolderError(layout.path, [message])
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
        "license": licence if licence in get_args(Licenses) else "not specified",
        "is_public": False,
    }
    return LocalMetadata.in_folder(layout.path, values)


def eval_languages(layout: Layout) -> list[str]:
    """Return the languages of a folder's task in mteb's form; `und-Zyyy` if it states none.

    A value of the Hub's key that names no language, such as `multilingual`, becomes `und-Zyyy`.

    Raises:
        FolderError: The task's own settings name an unknown language.
    """
    codes = []
    for stated in layout.languages:
        code = _LANGUAGES.get(stated.lower().replace("_", "-"), stated)
        try:
            check_language_code(code)
            known = "-" in code
        except ValueError:
            known = False
        if not known and layout.settings.languages:
            message = f"unknown language {stated!r}; write it like 'cmn-Hans' (ISO 639-3, ISO 15924)"
            raise FolderError(layout.path, [message])
        codes.append(code if known else UNKNOWN_LANGUAGE)
    return list(dict.fromkeys(codes)) or [UNKNOWN_LANGUAGE]
