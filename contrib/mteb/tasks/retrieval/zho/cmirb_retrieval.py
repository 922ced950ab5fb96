"""CMIRB: Chinese medical retrieval, without its copies of three tasks that mteb has."""

from __future__ import annotations

from typing import Any

from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.retrieval_dataset_loaders import RetrievalDatasetLoader
from mteb.abstasks.task_metadata import TaskMetadata

_BIBTEX = r"""
@article{li2024automir,
  author = {Li, Lei and Zhang, Xiangxu and Zhou, Xiao and Liu, Zheng},
  journal = {arXiv preprint arXiv:2410.20050},
  title = {AutoMIR: Effective Zero-Shot Medical Information Retrieval without Relevance Labels},
  year = {2024},
}
"""


class _Loader(RetrievalDatasetLoader):
    """For qrels whose columns are named as in C-MTEB; not needed once the data are reuploaded."""

    def _load_dataset_split(self, config: str, num_proc: int | None) -> Any:
        dataset = super()._load_dataset_split(config, num_proc)
        names = {"q_id": "query-id", "p_id": "corpus-id"}
        return dataset.rename_columns(
            {k: v for k, v in names.items() if k in dataset.column_names}
        )


class _CMIRBRetrieval(AbsTaskRetrieval):
    def load_data(self, num_proc: int | None = None, **kwargs: Any) -> None:
        if self.data_loaded:
            return
        data = self.metadata.dataset
        split = self.metadata.eval_splits[0]
        loader = _Loader(data["path"], data["revision"], split=split)
        self.dataset = {"default": {split: loader.load(num_proc)}}
        self.data_loaded = True


class MedExamRetrieval(_CMIRBRetrieval):
    metadata = TaskMetadata(
        name="MedExamRetrieval",
        description="Multiple-choice questions of medical licensing examinations and the textbook passages that answer them. Part of CMIRB; texts from MedQA (github.com/jind11/MedQA). The revision of CMIRB/MedExamRetrieval is not pinned: no source gives one.",
        reference="https://arxiv.org/abs/2410.20050",
        dataset={"path": "CMIRB/MedExamRetrieval", "revision": "main"},
        type="Retrieval",
        category="t2t",
        modalities=["text"],
        eval_splits=["test"],
        eval_langs=["cmn-Hans"],
        main_score="ndcg_at_10",
        date=("2024-10-21", "2024-10-21"),
        domains=["Medical", "Academic", "Written"],
        task_subtypes=["Article retrieval"],
        license="apache-2.0",
        annotations_creators="LM-generated",
        dialect=[],
        sample_creation="found",
        prompt={
            "query": "Given a question of a medical examination, retrieve textbook passages that answer the question"
        },
        bibtex_citation=_BIBTEX,
    )


class DuBaikeRetrieval(_CMIRBRetrieval):
    metadata = TaskMetadata(
        name="DuBaikeRetrieval",
        description="Medical queries of a web search engine and passages of an encyclopaedia. Part of CMIRB; texts from queries of DuReader (github.com/baidu/DuReader), passages of baike.baidu.com. The revision of CMIRB/DuBaikeRetrieval is not pinned: no source gives one.",
        reference="https://arxiv.org/abs/2410.20050",
        dataset={"path": "CMIRB/DuBaikeRetrieval", "revision": "main"},
        type="Retrieval",
        category="t2t",
        modalities=["text"],
        eval_splits=["test"],
        eval_langs=["cmn-Hans"],
        main_score="ndcg_at_10",
        date=("2024-10-21", "2024-10-21"),
        domains=["Medical", "Encyclopaedic", "Web", "Written"],
        task_subtypes=["Question answering"],
        license="not specified",
        annotations_creators="LM-generated",
        dialect=[],
        sample_creation="found",
        prompt={
            "query": "Given a medical search query, retrieve encyclopaedia passages that answer the query"
        },
        bibtex_citation=_BIBTEX,
    )


class DXYDiseaseRetrieval(_CMIRBRetrieval):
    metadata = TaskMetadata(
        name="DXYDiseaseRetrieval",
        description="Questions about diseases and the passages of a health site that answer them. Part of CMIRB; texts from dxy.com/diseases. The revision of CMIRB/DXYDiseaseRetrieval is not pinned: no source gives one.",
        reference="https://arxiv.org/abs/2410.20050",
        dataset={"path": "CMIRB/DXYDiseaseRetrieval", "revision": "main"},
        type="Retrieval",
        category="t2t",
        modalities=["text"],
        eval_splits=["test"],
        eval_langs=["cmn-Hans"],
        main_score="ndcg_at_10",
        date=("2024-10-21", "2024-10-21"),
        domains=["Medical", "Web", "Written"],
        task_subtypes=["Question answering"],
        license="apache-2.0",
        annotations_creators="derived",
        dialect=[],
        sample_creation="found",
        prompt={
            "query": "Given a question about a disease, retrieve passages that answer the question"
        },
        bibtex_citation=_BIBTEX,
    )


class DXYConsultRetrieval(_CMIRBRetrieval):
    metadata = TaskMetadata(
        name="DXYConsultRetrieval",
        description="Patients' consultations and the doctors' answers. Part of CMIRB; texts from dxy.com/questions.",
        reference="https://arxiv.org/abs/2410.20050",
        dataset={
            "path": "CMIRB/DXYConsultRetrieval",
            "revision": "ec8d6cbfe3766088d298961c63e3c4ddc08f2f09",
        },
        type="Retrieval",
        category="t2t",
        modalities=["text"],
        eval_splits=["test"],
        eval_langs=["cmn-Hans"],
        main_score="ndcg_at_10",
        date=("2024-10-21", "2024-10-21"),
        domains=["Medical", "Web", "Written"],
        task_subtypes=["Question answering"],
        license="apache-2.0",
        annotations_creators="derived",
        dialect=[],
        sample_creation="found",
        prompt={
            "query": "Given a patient's consultation, retrieve the doctor's answer"
        },
        bibtex_citation=_BIBTEX,
    )


class IIYIPostRetrieval(_CMIRBRetrieval):
    metadata = TaskMetadata(
        name="IIYIPostRetrieval",
        description="Titles of posts in a doctors' forum and the posts. Part of CMIRB; texts from bbs.iiyi.com. The revision of CMIRB/IIYIPostRetrieval is not pinned: no source gives one.",
        reference="https://arxiv.org/abs/2410.20050",
        dataset={"path": "CMIRB/IIYIPostRetrieval", "revision": "main"},
        type="Retrieval",
        category="t2t",
        modalities=["text"],
        eval_splits=["test"],
        eval_langs=["cmn-Hans"],
        main_score="ndcg_at_10",
        date=("2024-10-21", "2024-10-21"),
        domains=["Medical", "Social", "Written"],
        task_subtypes=["Question answering"],
        license="not specified",
        annotations_creators="derived",
        dialect=[],
        sample_creation="found",
        prompt={"query": "Given the title of a medical forum post, retrieve the post"},
        bibtex_citation=_BIBTEX,
    )


class CSLCiteRetrieval(_CMIRBRetrieval):
    metadata = TaskMetadata(
        name="CSLCiteRetrieval",
        description="Titles of medical papers and abstracts of the papers that they cite. Part of CMIRB; texts from CSL (github.com/ydli-ai/CSL), abstracts of med.wanfangdata.com.cn. The revision of CMIRB/CSLCiteRetrieval is not pinned: no source gives one.",
        reference="https://arxiv.org/abs/2410.20050",
        dataset={"path": "CMIRB/CSLCiteRetrieval", "revision": "main"},
        type="Retrieval",
        category="t2t",
        modalities=["text"],
        eval_splits=["test"],
        eval_langs=["cmn-Hans"],
        main_score="ndcg_at_10",
        date=("2024-10-21", "2024-10-21"),
        domains=["Medical", "Academic", "Written"],
        task_subtypes=["Article retrieval"],
        license="not specified",
        annotations_creators="derived",
        dialect=[],
        sample_creation="found",
        prompt={
            "query": "Given the title of a medical paper, retrieve abstracts of papers that it cites"
        },
        bibtex_citation=_BIBTEX,
    )


class CSLRelatedRetrieval(_CMIRBRetrieval):
    metadata = TaskMetadata(
        name="CSLRelatedRetrieval",
        description="Medical papers and abstracts of similar papers. Part of CMIRB; texts from CSL (github.com/ydli-ai/CSL), abstracts of med.wanfangdata.com.cn. The revision of CMIRB/CSLRelatedRetrieval is not pinned: no source gives one.",
        reference="https://arxiv.org/abs/2410.20050",
        dataset={"path": "CMIRB/CSLRelatedRetrieval", "revision": "main"},
        type="Retrieval",
        category="t2t",
        modalities=["text"],
        eval_splits=["test"],
        eval_langs=["cmn-Hans"],
        main_score="ndcg_at_10",
        date=("2024-10-21", "2024-10-21"),
        domains=["Medical", "Academic", "Written"],
        task_subtypes=["Article retrieval"],
        license="not specified",
        annotations_creators="derived",
        dialect=[],
        sample_creation="found",
        prompt={
            "query": "Given the text of a medical paper, retrieve abstracts of similar papers"
        },
        bibtex_citation=_BIBTEX,
    )
