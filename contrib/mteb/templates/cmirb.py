"""CMIRB, from this package's table."""

from __future__ import annotations

from medteb_mteb.tasks.cmirb import CITATION, CMIRB_TASKS

from .render import BASE, bibtex, formatted, task_class

HEAD = '''"""CMIRB: Chinese medical retrieval, without its copies of three tasks that mteb has."""

from __future__ import annotations

from typing import Any

from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.retrieval_dataset_loaders import RetrievalDatasetLoader
from mteb.abstasks.task_metadata import TaskMetadata

_BIBTEX = {citation}


class _Loader(RetrievalDatasetLoader):
    """For qrels whose columns are named as in C-MTEB; not needed once the data are reuploaded."""

    def _load_dataset_split(self, config: str, num_proc: int | None) -> Any:
        dataset = super()._load_dataset_split(config, num_proc)
        names = {{"q_id": "query-id", "p_id": "corpus-id"}}
        return dataset.rename_columns(
            {{k: v for k, v in names.items() if k in dataset.column_names}}
        )
'''


def content() -> str:
    """Return the text of the file."""
    new = [task for task in CMIRB_TASKS if not task.published.adapted_from]  # mteb has the data of the others
    classes = [task_class("_CMIRBRetrieval", task.metadata.model_dump(), "_BIBTEX") for task in new]
    base = BASE.format(name="_CMIRBRetrieval")
    return formatted("".join([HEAD.format(citation=bibtex(CITATION)), base, *classes]))
