"""BEIR's 500 BioASQ topics over documents cut to the snippets that experts marked."""

from __future__ import annotations

from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata


class BioASQ500SnippetsRetrieval(AbsTaskRetrieval):
    metadata = TaskMetadata(
        name="BioASQ500SnippetsRetrieval",
        description="The 500 BioASQ topics of BEIR. The corpus is made of the snippets that experts marked in documents for BioASQ 7B to 11B: neither PubMed nor BMRetriever's 500,000 documents.",
        reference="https://aclanthology.org/2024.emnlp-main.1241/",
        dataset={"path": "mteb/BioASQ500SnippetsRetrieval", "revision": "main"},
        type="Retrieval",
        category="t2t",
        modalities=["text"],
        eval_splits=["test"],
        eval_langs=["eng-Latn"],
        main_score="ndcg_at_20",
        date=("2019-01-01", "2023-12-31"),
        domains=["Medical", "Written"],
        task_subtypes=["Question Answering Retrieval"],
        license="not specified",
        annotations_creators="expert-annotated",
        dialect=[],
        sample_creation="found",
        prompt={
            "query": "Given a question, retrieve Pubmed passages that answer the question"
        },
        bibtex_citation=r"""
@article{tsatsaronis2015overview,
  author = {Tsatsaronis, George and Balikas, Georgios and Malakasiotis, Prodromos and Partalas, Ioannis and Zschunke, Matthias and Alvers, Michael R. and Weissenborn, Dirk and Krithara, Anastasia and Petridis, Sergios and Polychronopoulos, Dimitris and others},
  journal = {BMC Bioinformatics},
  number = {1},
  pages = {138},
  title = {An overview of the {BIOASQ} large-scale biomedical semantic indexing and question answering competition},
  volume = {16},
  year = {2015},
}

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
