"""Writes the task file of CMIRB as it would stand in mteb, from this package's table."""

from __future__ import annotations

from pathlib import Path

from medteb_mteb.tasks.cmirb import CITATION, CMIRB_TASKS

#: Place in a checkout of mteb: mteb/tasks/retrieval/zho/cmirb_retrieval.py
TARGET = Path(__file__).with_name("cmirb_retrieval.py")

HEAD = f'''"""CMIRB: Chinese medical retrieval, without its copies of three tasks that mteb has."""

from __future__ import annotations

from typing import Any

from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.retrieval_dataset_loaders import RetrievalDatasetLoader
from mteb.abstasks.task_metadata import TaskMetadata

_BIBTEX = r"""{CITATION}"""


class _Loader(RetrievalDatasetLoader):
    """For qrels whose columns are named as in C-MTEB; not needed once the data are reuploaded."""

    def _load_dataset_split(self, config: str, num_proc: int | None) -> Any:
        found = super()._load_dataset_split(config, num_proc)
        names = {{"q_id": "query-id", "p_id": "corpus-id"}}
        return found.rename_columns({{k: v for k, v in names.items() if k in found.column_names}})


class _CMIRBRetrieval(AbsTaskRetrieval):
    def load_data(self, num_proc: int | None = None, **kwargs: Any) -> None:
        if self.data_loaded:
            return
        data = self.metadata.dataset
        split = self.metadata.eval_splits[0]
        loader = _Loader(data["path"], data["revision"], split=split)
        self.dataset = {{"default": {{split: loader.load(num_proc)}}}}
        self.data_loaded = True
'''

FIELDS = (
    "name", "description", "reference", "dataset", "type", "category", "modalities", "eval_splits",
    "eval_langs", "main_score", "date", "domains", "task_subtypes", "license", "annotations_creators",
    "dialect", "sample_creation", "prompt",
)  # fmt: skip


def content() -> str:
    """Return the text of the file."""
    parts = [HEAD]
    for task in CMIRB_TASKS:
        if task.published.adapted_from:  # mteb has these data
            continue
        values = task.metadata.model_dump()
        parts.append(f"\n\nclass {values['name']}(_CMIRBRetrieval):\n    metadata = TaskMetadata(\n")
        parts += [f"        {field}={values[field]!r},\n" for field in FIELDS]
        parts.append("        bibtex_citation=_BIBTEX,\n    )\n")
    return "".join(parts)


if __name__ == "__main__":
    TARGET.write_text(content(), encoding="utf-8")
