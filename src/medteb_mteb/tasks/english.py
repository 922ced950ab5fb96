"""English MedTEB: 51 tasks made from one table, over a snapshot of their data."""

from __future__ import annotations

import os
import re
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, cast

from datasets import Dataset, DatasetDict
from mteb._evaluators import ClusteringEvaluator
from mteb.abstasks import AbsTaskClassification, AbsTaskPairClassification, AbsTaskRetrieval
from mteb.abstasks.clustering_legacy import AbsTaskClusteringLegacy
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.timing import TimingStack
from sklearn.model_selection import train_test_split

from mar_st.files import printable
from medteb_mteb.abstasks.local_copy import DataUnavailableError, LocalCopy, copy_of
from medteb_mteb.abstasks.pairs import f1_by_train_threshold
from medteb_mteb.abstasks.tuned import fine_tuned
from medteb_mteb.editions import DATA_VARIABLE
from medteb_mteb.english.snapshot import (
    FOLDER,
    SnapshotOptions,
    file_of,
    read_manifest,
    read_options,
    read_rows,
    revision_of,
)
from medteb_mteb.english.table import MAIN_METRICS, TYPES, EnglishTask, english_tasks
from medteb_mteb.folders.problems import FolderError
from medteb_mteb.tasks._built import NOT_BUILT
from medteb_mteb.tasks._edition_task import licence_for_mteb

if TYPE_CHECKING:
    from mteb.abstasks.abstask import AbsTask

__all__ = ["CITATION", "ENGLISH_TASKS", "REFERENCE", "SnapshotTask"]

REFERENCE = "https://arxiv.org/abs/2507.19407"
CITATION = r"""
@misc{khodadad2025towards,
  archiveprefix = {arXiv},
  author = {Mohammad Khodadad and Ali Shiraee Kasmaee and Mahdi Astaraki and Hamidreza Mahyar},
  eprint = {2507.19407},
  title = {Towards Domain Specification of Embedding Models in Medicine},
  url = {https://arxiv.org/abs/2507.19407},
  year = {2025},
}
"""
#: Share of the rows in the test split, and the seed of the split, as in the authors' code.
TEST_SHARE, SEED = 0.3, 42
#: Title that the authors' wrapper gives to every document.
NO_TITLE = "No title"


class SnapshotTask(LocalCopy):
    """Reads its CSV file of the snapshot `$MEDTEB_DATA/MedTEB-eng`; put it before mteb's class in the bases.

    The revision is a digest of the file and of the options that change the task's scores.
    """

    of: ClassVar[EnglishTask]

    def __init__(self, **kwargs: Any) -> None:
        folder = copy_of(FOLDER)
        there = folder is not None and file_of(folder, self.of).is_file()
        self.use_copy(folder if there else None, lambda copy: revision_of(copy, self.of))
        super().__init__(**kwargs)

    @property
    def copy_name(self) -> str:
        """Return the name of the snapshot's folder."""
        return FOLDER

    @property
    def needs(self) -> str:
        """Return the requirements for making the task's file; empty if the snapshot has it."""
        return "nothing" if self.local_copy is not None else self.of.needs

    @property
    def size(self) -> tuple[int, int] | None:
        """Return queries and documents of a retrieval task; None if no manifest counts its rows."""
        rows = self._recorded().get("rows")
        return (rows, rows) if self.of.type == "RET" and type(rows) is int else None

    @property
    def differs(self) -> str:
        """Return how the rows differ from the published ones; empty if the snapshot does not state it."""
        text = self._recorded().get("differs")
        return printable(" ".join(text.split())) if isinstance(text, str) else ""

    def _recorded(self) -> dict[str, Any]:
        """Return the task's entry in the snapshot's manifest; empty without one."""
        if self.local_copy is None:
            return {}
        try:
            recorded = read_manifest(self.local_copy)["tasks"].get(self.of.name)
        except FolderError:  # loading the data reports the problem
            return {}
        return recorded if isinstance(recorded, dict) else {}

    def load_data(
        self, num_proc: int | None = None, *, timer: TimingStack | None = None, **kwargs: Any
    ) -> None:
        """Read and check the task's file.

        Raises:
            DataUnavailableError: The file does not exist.
            FolderError: The file has problems, or changed after the task was created.
        """
        del num_proc, kwargs  # a checked read of one file takes no options
        if self.data_loaded:
            return
        folder = self.copy_to_read()
        if folder is None:
            root = os.environ.get(DATA_VARIABLE) or f"${DATA_VARIABLE}"
            writer = " --llm FILE" if self.of.needs == "an LLM" else ""
            raise DataUnavailableError(
                f"the data of {self.of.name} are not published. Expected "
                f"{root}/{FOLDER}/{self.of.name}.csv; the "
                f"source is {self.of.source}, and making it needs {self.of.needs}: {self._fetching()}`medteb "
                f"build relatives {self.of.name} FOLDER {root}{writer}`."
            )
        with (timer or TimingStack())("Data loading", log_message=f"Loading {self.metadata.name}..."):
            if revision_of(folder, self.of) != self.metadata.revision:
                raise FolderError(folder, ["the data changed after the task was created; create it again"])
            self.take(read_rows(folder, self.of), read_options(folder))
        self.data_loaded = True

    def _fetching(self) -> str:
        """Return the command that fetches the raw files, for tasks of an API."""
        return f"`medteb build fetch {self.of.api} FOLDER --contact ADDRESS`, then " if self.of.api else ""

    @abstractmethod
    def take(self, rows: list[dict[str, Any]], options: SnapshotOptions) -> None:
        """Make the data set from the rows."""


class SnapshotClassification(SnapshotTask, AbsTaskClassification):
    """A logistic regression on 8 texts per label of 70 % of the rows, 10 times; macro F1 on the others."""

    tune = False

    def take(self, rows: list[dict[str, Any]], options: SnapshotOptions) -> None:
        """Number the labels in the order in which they occur, and split the rows."""
        numbers = {label: number for number, label in enumerate(dict.fromkeys(row["label"] for row in rows))}
        every = [{"text": row["text"], "label": numbers[row["label"]]} for row in rows]
        train, test = train_test_split(every, test_size=TEST_SHARE, random_state=SEED)
        self.dataset = DatasetDict({"train": Dataset.from_list(train), "test": Dataset.from_list(test)})
        self.tune = options.classifier == "fine-tuned"

    def _evaluate_subset(self, model: Any, data_split: Any, **kwargs: Any) -> Any:
        if self.tune:
            train = data_split[self.train_split]
            model = fine_tuned(model, list(train["text"]), list(train["label"]))
        return super()._evaluate_subset(model, data_split, **kwargs)


class _SmallBatches(ClusteringEvaluator):
    """MiniBatchKMeans in batches of 32, as published; mteb's are of 500."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, clustering_batch_size=32, **kwargs)


class SnapshotClustering(SnapshotTask, AbsTaskClusteringLegacy):
    """All rows as one set, clustered by MiniBatchKMeans; V-measure."""

    evaluator = _SmallBatches

    def take(self, rows: list[dict[str, Any]], options: SnapshotOptions) -> None:
        """Make one set of all rows."""
        del options
        one = {"sentences": [row["text"] for row in rows], "labels": [row["label"] for row in rows]}
        self.dataset = DatasetDict({"test": Dataset.from_list([one])})


class SnapshotPairs(SnapshotTask, AbsTaskPairClassification):
    """Pairs; the best F1 of the similarities."""

    by_train = False

    def take(self, rows: list[dict[str, Any]], options: SnapshotOptions) -> None:
        """Take the pairs unchanged."""
        pairs = [
            {"sentence1": r["sentence1"], "sentence2": r["sentence2"], "labels": r["label"]} for r in rows
        ]
        self.dataset = DatasetDict({"test": Dataset.from_list(pairs)})
        self.by_train = options.threshold == "train"

    def _compute_metrics(self, similarity_scores: Any, labels: list[int]) -> dict[str, float]:
        metrics = super()._compute_metrics(similarity_scores, labels)
        if self.by_train:
            train, test = train_test_split(range(len(labels)), test_size=TEST_SHARE, random_state=SEED)
            metrics["max_f1"] = f1_by_train_threshold(similarity_scores, labels, train, test)
        return metrics


class SnapshotRetrieval(SnapshotTask, AbsTaskRetrieval):
    """Each query has the document of its row; nDCG@10."""

    def take(self, rows: list[dict[str, Any]], options: SnapshotOptions) -> None:
        """Number queries and documents by rows, as the authors do; equal texts stay apart."""
        title = NO_TITLE if options.title == NO_TITLE else ""
        corpus = [{"id": f"doc_{i}", "title": title, "text": row["corpus"]} for i, row in enumerate(rows)]
        queries = [{"id": f"q_{i}", "text": row["query"]} for i, row in enumerate(rows)]
        self.dataset = {
            "default": {
                "test": {
                    "corpus": Dataset.from_list(corpus),
                    "queries": Dataset.from_list(queries),
                    "relevant_docs": {f"q_{i}": {f"doc_{i}": 1} for i in range(len(rows))},
                    "top_ranked": None,
                }
            }
        }


_BASES: dict[str, type[SnapshotTask]] = {
    "CLS": SnapshotClassification,
    "CLU": SnapshotClustering,
    "PAIR": SnapshotPairs,
    "RET": SnapshotRetrieval,
}


def _make(task: EnglishTask) -> type[AbsTask]:
    metadata = TaskMetadata(
        name=task.name,
        description=(
            f"Task {task.number} of 51 of English MedTEB ({task.type}, from {task.source}). The data are not "
            f"published: they come from a snapshot, the folder {FOLDER} in ${DATA_VARIABLE}, whose "
            f"{task.name}.csv "
            "may differ from the authors'."
        ),
        dataset={"path": f"medteb/{FOLDER}", "revision": NOT_BUILT},
        reference=REFERENCE,
        type=TYPES[task.type],
        category="t2c" if task.type in ("CLS", "CLU") else "t2t",
        modalities=["text"],
        eval_splits=["test"],
        eval_langs=["eng-Latn"],
        main_score=MAIN_METRICS[task.type],
        date=task.date,
        annotations_creators=task.annotations,
        domains=["Medical", "Written"],
        task_subtypes=[],
        license=licence_for_mteb(task.licence),
        dialect=[],
        sample_creation="found",
        is_public=False,
        bibtex_citation=CITATION,
    )
    attributes = {"metadata": metadata, "of": task, "__doc__": metadata.description, "__module__": __name__}
    return cast("type[AbsTask]", type(re.sub(r"\W", "_", task.name), (_BASES[task.type],), attributes))


ENGLISH_TASKS: tuple[type[AbsTask], ...] = tuple(_make(task) for task in english_tasks().values())
