"""Names of diseases to definitions, in the place of MeSH."""

from __future__ import annotations

from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata


class DiseaseOntologyRetrieval(AbsTaskRetrieval):
    metadata = TaskMetadata(
        name="DiseaseOntologyRetrieval",
        description="Names of diseases, each to its definition in the Disease Ontology. It replaces BMRetriever's MeSH set and differs from it, so scores are not comparable.",
        reference="https://disease-ontology.org/",
        dataset={"path": "mteb/DiseaseOntologyRetrieval", "revision": "main"},
        type="Retrieval",
        category="t2t",
        modalities=["text"],
        eval_splits=["test"],
        eval_langs=["eng-Latn"],
        main_score="mrr_at_5",
        date=("2003-01-01", "2026-07-31"),
        domains=["Medical", "Written"],
        task_subtypes=[],
        license="cc0-1.0",
        annotations_creators="expert-annotated",
        dialect=[],
        sample_creation="found",
        prompt={"query": "Given a concept, retrieve passages for its definition"},
        bibtex_citation=r"""
@inproceedings{xu-etal-2024-bmretriever,
  address = {Miami, Florida, USA},
  author = {Xu, Ran and Shi, Wenqi and Yu, Yue and Zhuang, Yuchen and Zhu, Yanqiao and Wang, May Dongmei and Ho, Joyce C. and Zhang, Chao and Yang, Carl},
  booktitle = {Proceedings of the 2024 Conference on Empirical Methods in Natural Language Processing},
  month = {November},
  pages = {22234--22254},
  publisher = {Association for Computational Linguistics},
  title = {{BMR}etriever: Tuning Large Language Models as Better Biomedical Text Retrievers},
  url = {https://aclanthology.org/2024.emnlp-main.1241/},
  year = {2024},
}
""",
    )
