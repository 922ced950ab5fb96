"""The test questions of PubMedQA over abstracts without conclusions."""

from __future__ import annotations

from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata


class PubMedQA500Retrieval(AbsTaskRetrieval):
    metadata = TaskMetadata(
        name="PubMedQA500Retrieval",
        description="The 500 test questions of PubMedQA, each to the abstract that it is the title of, without the conclusion. The corpus is the 1,000 labelled abstracts, or also PQA-A's 211,000 as in BMRetriever.",
        reference="https://aclanthology.org/2024.emnlp-main.1241/",
        dataset={"path": "mteb/PubMedQA500Retrieval", "revision": "main"},
        type="Retrieval",
        category="t2t",
        modalities=["text"],
        eval_splits=["test"],
        eval_langs=["eng-Latn"],
        main_score="ndcg_at_20",
        date=("2019-01-01", "2019-12-31"),
        domains=["Medical", "Written"],
        task_subtypes=["Question Answering Retrieval"],
        license="mit",
        annotations_creators="derived",
        dialect=[],
        sample_creation="found",
        prompt={
            "query": "Given a question, retrieve Pubmed passages that answer the question"
        },
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
