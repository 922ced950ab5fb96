"""English MedTEB (arXiv 2507.19407): its 51 tasks, over a snapshot of their data.

A snapshot is the folder `$MEDTEB_DATA/MedTEB-eng` with a CSV file per task in the columns of the authors'
scrapers. The code of the authors defines more tasks; which 51 are the paper's follows from its averages. The
main scores are the paper's: macro F1 of a logistic regression on 8 texts per label of 70 % of the rows,
V-measure of all rows as one set, the best F1 of the similarities, nDCG@10.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from datasets import Dataset, DatasetDict
from mteb._evaluators import ClusteringEvaluator
from mteb.abstasks import AbsTaskClassification, AbsTaskPairClassification, AbsTaskRetrieval
from mteb.abstasks.clustering_legacy import AbsTaskClusteringLegacy
from sklearn.model_selection import train_test_split

from mar_st.data.rows import Row, read_rows
from mar_st.errors import MarError
from mar_st.files import leads_outside, sha256
from medteb_mteb.abstasks import LocalTask, copy_of
from medteb_mteb.folders.layout import FolderError
from medteb_mteb.tasks.public import NOT_BUILT, not_built
from medteb_mteb.tasks.tables import licence_for_mteb, make_task, metadata, table

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

#: Name of the snapshot's folder in `$MEDTEB_DATA`.
FOLDER = "MedTEB-eng"
#: Types of tasks as the paper abbreviates them, in mteb's words.
TYPES = {"CLS": "Classification", "CLU": "Clustering", "PAIR": "PairClassification", "RET": "Retrieval"}
_MAIN_SCORES = {"CLS": "f1", "CLU": "v_measure", "PAIR": "max_f1", "RET": "ndcg_at_10"}
COLUMNS = {
    "CLS": ("text", "label"),
    "CLU": ("text", "label"),
    "PAIR": ("sentence1", "sentence2", "label"),
    "RET": ("query", "corpus"),
}
#: Values of `label` in pairs.
_LABELS = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "False": 0, "True": 1}
#: First and last day of the preprints, as published; the dates of the other texts are not stated.
PREPRINT_DAYS = ("2018-01-01", "2022-12-20")
#: Share of the rows in the test split, and the seed of the split, as in the authors' code.
TEST_SHARE, SEED = 0.3, 42


@dataclass(frozen=True)
class EnglishTask:
    """A task of the paper.

    Attributes:
        number: Number in the list of 51 tasks.
        name: Exact name, which is also the name of its CSV file.
        type: `CLS`, `CLU`, `PAIR` or `RET`.
        source: Source of its texts.
        needs: Requirement for building its data as published: network, credentials or an LLM.
    """

    number: int
    name: str
    type: str
    source: str
    needs: str


@cache
def english_tasks() -> Mapping[str, EnglishTask]:
    """Return the 51 tasks by name, in the paper's order."""
    return {row["name"]: EnglishTask(**row) for row in table("english")["tasks"]}


class SnapshotTask(LocalTask):
    """Reads its CSV file of the snapshot; put it before mteb's class in the bases."""

    of: ClassVar[EnglishTask]

    @property
    def copy_name(self) -> str:
        """Return the name of the snapshot's folder."""
        return FOLDER

    def find(self) -> Path | None:
        """Return the snapshot's folder if it holds the task's file."""
        folder = copy_of(FOLDER)
        return folder if folder is not None and (folder / f"{self.of.name}.csv").is_file() else None

    def describe(self, folder: Path) -> dict[str, Any]:
        """Return the digest of the task's file."""
        file = folder / f"{self.of.name}.csv"
        if leads_outside(file, folder):
            raise FolderError(folder, [f"{file.name} is a symbolic link out of the folder"])
        return {"revision": sha256(file)}

    def fetch(self, num_proc: int | None, **kwargs: Any) -> None:
        """Say how to build the data, which are not published.

        Raises:
            DataUnavailableError: Always.
        """
        del num_proc, kwargs
        raise not_built(self.of.name, f"its source, {self.of.source} (needs {self.of.needs})")

    def read(self, folder: Path) -> None:
        """Read the rows; those with an empty cell are dropped, as the authors do."""
        columns, file = COLUMNS[self.of.type], folder / f"{self.of.name}.csv"

        def cells(row: Row) -> dict[str, Any]:
            if missing := [name for name in columns if name not in row.values]:
                raise MarError(f"no column {', '.join(missing)}; got {', '.join(row.values)}.")
            values: dict[str, Any] = {name: str(row.values[name]) for name in columns}
            if self.of.type == "PAIR" and all(one.strip() for one in values.values()):
                if values["label"].strip() not in _LABELS:
                    raise MarError(f"label {values['label'][:40]!r} is not 0 or 1.")
                values["label"] = _LABELS[values["label"].strip()]
            return values

        rows = [row for row in read_rows(file, cells) if all(str(one).strip() for one in row.values())]
        if len(rows) < 2 or ("label" in columns and len({row["label"] for row in rows}) < 2):
            raise FolderError(
                folder, [f"{file.name}: {len(rows)} full rows, or one label alone, cannot be scored"]
            )
        self.take(rows)

    def take(self, rows: list[dict[str, Any]]) -> None:
        """Make the data set from the rows."""
        raise NotImplementedError


class _Classification(SnapshotTask, AbsTaskClassification):  # type: ignore[misc]
    def take(self, rows: list[dict[str, Any]]) -> None:
        """Number the labels in the order in which they occur, and split the rows."""
        numbers = {label: number for number, label in enumerate(dict.fromkeys(row["label"] for row in rows))}
        every = [{"text": row["text"], "label": numbers[row["label"]]} for row in rows]
        train, test = train_test_split(every, test_size=TEST_SHARE, random_state=SEED)
        self.dataset = DatasetDict({"train": Dataset.from_list(train), "test": Dataset.from_list(test)})


class _SmallBatches(ClusteringEvaluator):
    """MiniBatchKMeans in batches of 32, as published; mteb's are of 500."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, clustering_batch_size=32, **kwargs)


class _Clustering(SnapshotTask, AbsTaskClusteringLegacy):
    evaluator = _SmallBatches

    def take(self, rows: list[dict[str, Any]]) -> None:
        """Make one set of all rows."""
        one = {"sentences": [row["text"] for row in rows], "labels": [row["label"] for row in rows]}
        self.dataset = DatasetDict({"test": Dataset.from_list([one])})


class _Pairs(SnapshotTask, AbsTaskPairClassification):
    def take(self, rows: list[dict[str, Any]]) -> None:
        """Take the pairs unchanged."""
        pairs = [{"labels" if key == "label" else key: row[key] for key in row} for row in rows]
        self.dataset = DatasetDict({"test": Dataset.from_list(pairs)})


class _Retrieval(SnapshotTask, AbsTaskRetrieval):
    def take(self, rows: list[dict[str, Any]]) -> None:
        """Number queries and documents by rows, as the authors do; equal texts stay apart."""
        corpus = [{"id": f"doc_{i}", "title": "", "text": row["corpus"]} for i, row in enumerate(rows)]
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


_BASES = {"CLS": _Classification, "CLU": _Clustering, "PAIR": _Pairs, "RET": _Retrieval}


def _make(task: EnglishTask) -> type[SnapshotTask]:
    # Of MedQuAD, the LLM writes only documents.
    written = task.needs == "an LLM" and task.source != "MedQuAD"
    of = metadata(
        task.name,
        f"medteb/{FOLDER}",
        NOT_BUILT,
        "medte",
        description=(
            f"Task {task.number} of 51 of English MedTEB ({task.type}, from {task.source}). The data are not "
            f"published: they come from a snapshot, the folder {FOLDER} in $MEDTEB_DATA, whose "
            f"{task.name}.csv may differ from the authors'."
        ),
        reference="https://arxiv.org/abs/2507.19407",
        type=TYPES[task.type],
        category="t2c" if task.type in ("CLS", "CLU") else "t2t",
        eval_langs=["eng-Latn"],
        main_score=_MAIN_SCORES[task.type],
        date=PREPRINT_DAYS if task.source in ("bioRxiv", "medRxiv") else None,
        annotations_creators="LM-generated" if written else "derived",
        task_subtypes=[],
        license=licence_for_mteb(table("english")["licences"][task.source]),
        sample_creation="found",
        is_public=False,
    )
    return make_task(of, _BASES[task.type], of=task)


ENGLISH_TASKS = tuple(_make(task) for task in english_tasks().values())
