"""RELISH: candidates for biomedical articles, graded by the articles' authors."""

from __future__ import annotations

from typing import Any

from datasets import Dataset, load_dataset
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.retrieval_dataset_loaders import RetrievalSplitData
from mteb.abstasks.task_metadata import TaskMetadata


def _in_one_line(text: str | None) -> str:
    return " ".join((text or "").split())


class RELISHReranking(AbsTaskRetrieval):
    metadata = TaskMetadata(
        name="RELISHReranking",
        description="Articles, each with candidates graded 0, 1 or 2 by authors; MAP takes 1 and 2 as relevant. RELISH as published in SciRepEval.",
        reference="https://aclanthology.org/2023.emnlp-main.338/",
        dataset={
            "path": "allenai/scirepeval",
            "name": "relish",
            "revision": "781d35d1bf87253b3dcd0fadcb82bfbee9c244f1",
        },
        type="Reranking",
        category="t2t",
        modalities=["text"],
        eval_splits=["evaluation"],
        eval_langs=["eng-Latn"],
        main_score="map_at_1000",
        date=("2022-01-01", "2023-12-06"),
        domains=["Academic", "Medical", "Written"],
        task_subtypes=["Scientific Reranking"],
        license="odc-by",
        annotations_creators="expert-annotated",
        dialect=[],
        sample_creation="found",
        prompt={
            "query": "Given an article, retrieve Pubmed articles that are relevant to this article"
        },
        bibtex_citation=r"""
@inproceedings{singh-etal-2023-scirepeval,
  address = {Singapore},
  author = {Singh, Amanpreet  and
D{'}Arcy, Mike  and
Cohan, Arman  and
Downey, Doug  and
Feldman, Sergey},
  booktitle = {Proceedings of the 2023 Conference on Empirical Methods in Natural Language Processing},
  doi = {10.18653/v1/2023.emnlp-main.338},
  month = dec,
  pages = {5548--5566},
  publisher = {Association for Computational Linguistics},
  title = {{SciRepEval: A Multi-Format Benchmark for Scientific Document Representations}},
  url = {https://aclanthology.org/2023.emnlp-main.338/},
  year = {2023},
}
""",
    )

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
            text = f"{title}\n{_in_one_line(article['abstract'])}".strip()
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
