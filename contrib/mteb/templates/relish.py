"""RELISH in SciRepEval's form: candidates for articles, graded by their authors."""

from __future__ import annotations

import mteb

from medteb_mteb.tasks.relatives import RELISHReranking

from .render import bibtex, formatted, task_class

#: mteb's task on another configuration of the same data set: its revision, domains and citation.
SIBLING = "SciRepEvalMeSHDescriptorsClassification"
HEAD = '''"""RELISH: candidates for biomedical articles, graded by the articles' authors."""

from __future__ import annotations

from typing import Any

from datasets import Dataset, load_dataset
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.retrieval_dataset_loaders import RetrievalSplitData
from mteb.abstasks.task_metadata import TaskMetadata


def _in_one_line(text: str | None) -> str:
    return " ".join((text or "").split())
'''
LOADING = """
    def load_data(self, num_proc: int | None = None, **kwargs: Any) -> None:
        if self.data_loaded:
            return
        split = self.metadata.eval_splits[0]
        rows = load_dataset(**self.metadata.dataset, split=split, num_proc=num_proc)
        corpus: dict[str, dict[str, str]] = {}
        queries: list[dict[str, str]] = []
        qrels: dict[str, dict[str, int]] = {}
        for row in rows:
            article, candidates = row["query"], row["candidates"]
            grades = {str(one["doc_id"]): int(one["score"]) for one in candidates}
            if not any(grades.values()):  # no relevant candidate to find
                continue
            for one in candidates:
                corpus[str(one["doc_id"])] = {
                    "id": str(one["doc_id"]),
                    "title": _in_one_line(one["title"]),
                    "text": _in_one_line(one["abstract"]),
                }
            key, title = str(article["doc_id"]), _in_one_line(article["title"])
            text = f"{title}\\n{_in_one_line(article['abstract'])}".strip()
            queries.append({"id": key, "text": text})
            qrels[key] = grades
        data = RetrievalSplitData(
            corpus=Dataset.from_list(list(corpus.values())),
            queries=Dataset.from_list(queries),
            relevant_docs=qrels,
            top_ranked={query: list(grades) for query, grades in qrels.items()},
        )
        self.dataset = {"default": {split: data}}
        self.data_loaded = True
"""


def content() -> str:
    """Return the text of the file."""
    sibling, own = mteb.get_task(SIBLING).metadata, RELISHReranking.metadata
    fields = own.model_dump() | {
        "description": f"{own.description} RELISH as published in SciRepEval.",
        "reference": sibling.reference,
        "dataset": {
            "path": sibling.dataset["path"],
            "name": "relish",
            "revision": sibling.dataset["revision"],
        },
        "eval_splits": ["evaluation"],
        "domains": sibling.domains,
    }
    made = task_class("AbsTaskRetrieval", fields, bibtex(sibling.bibtex_citation or ""))
    return formatted(HEAD + made + LOADING)
