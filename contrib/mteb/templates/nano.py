"""NanoCMTEB and NanoMedical: retrieval, and reranking of the hybrid candidates with their safeguards."""

from __future__ import annotations

from medteb_mteb.nano.table import HYBRID
from medteb_mteb.tasks.nano import NANO_TASKS, nano_names

from .render import BASE, bibtex, formatted, task_class

ABOUT = {"NanoCMTEB": "eight Chinese sets", "NanoMedical": "ten medical sets in four languages"}
HEAD = '''"""{set} of HAKARI-Bench: {about} of up to 200 queries and 10,000 documents."""

from __future__ import annotations

from typing import Any

from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.retrieval_dataset_loaders import RetrievalDatasetLoader
from mteb.abstasks.task_metadata import TaskMetadata

'''
LOADERS = {
    "Retrieval": '''
class _Loader(RetrievalDatasetLoader):
    """For qrels without scores: all are positives. Not needed once the data are reuploaded."""

    def _load_dataset_split(self, config: str, num_proc: int | None) -> Any:
        dataset = super()._load_dataset_split(config, num_proc)
        if config == "qrels" and "score" not in dataset.column_names:
            dataset = dataset.add_column("score", [1] * len(dataset))
        return dataset
''',
    "Reranking": f'''
class _Loader(RetrievalDatasetLoader):
    """For qrels without scores (all are positives) and the published name of the candidates.

    Not needed once the data are reuploaded.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.dataset_configs = [*self.dataset_configs, "top_ranked"]

    def _load_dataset_split(self, config: str, num_proc: int | None) -> Any:
        name = "{HYBRID}" if config == "top_ranked" else config
        dataset = super()._load_dataset_split(name, num_proc)
        if config == "qrels" and "score" not in dataset.column_names:
            dataset = dataset.add_column("score", [1] * len(dataset))
        return dataset
''',
}


def content(set_name: str, kind: str) -> str:
    """Return the text of the file.

    Args:
        set_name: `NanoCMTEB` or `NanoMedical`.
        kind: `Retrieval` or `Reranking`.
    """
    base = f"_{set_name}{kind}"
    by_name = {task.metadata.name: task.metadata for task in NANO_TASKS}
    parts = [HEAD.format(set=set_name, about=ABOUT[set_name]), LOADERS[kind], BASE.format(name=base)]
    for name in nano_names(set_name, kind):
        metadata = by_name[name]
        parts.append(task_class(base, metadata.model_dump(), bibtex(metadata.bibtex_citation or "")))
    return formatted("".join(parts))
