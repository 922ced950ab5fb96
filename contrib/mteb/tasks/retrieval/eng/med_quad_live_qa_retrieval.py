"""Answers to consumer health questions with grades by people, graded nDCG@10."""

from __future__ import annotations

from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata


class MedQuADLiveQARetrieval(AbsTaskRetrieval):
    metadata = TaskMetadata(
        name="MedQuADLiveQARetrieval",
        description="Consumer health questions of TREC 2017 LiveQA against the answers of MedQuAD, graded by people: 1 incorrect, 2 related, 3 incomplete, 4 excellent. The gains of nDCG are 0, 1, 2 and 3.",
        reference="https://doi.org/10.1186/s12859-019-3119-4",
        dataset={"path": "mteb/MedQuADLiveQARetrieval", "revision": "main"},
        type="Retrieval",
        category="t2t",
        modalities=["text"],
        eval_splits=["test"],
        eval_langs=["eng-Latn"],
        main_score="ndcg_at_10",
        date=("2017-01-01", "2019-10-22"),
        domains=["Medical", "Written"],
        task_subtypes=["Question Answering Retrieval"],
        license="cc-by-4.0",
        annotations_creators="expert-annotated",
        dialect=[],
        sample_creation="found",
        prompt={
            "query": "Given a consumer health question, retrieve answers from trusted medical sources"
        },
        bibtex_citation=r"""
@article{benabacha2019question,
  author = {Ben Abacha, Asma and Demner-Fushman, Dina},
  journal = {BMC Bioinformatics},
  number = {1},
  pages = {511:1--511:23},
  title = {A question-entailment approach to question answering},
  url = {https://doi.org/10.1186/s12859-019-3119-4},
  volume = {20},
  year = {2019},
}
""",
    )
