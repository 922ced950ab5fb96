"""NanoMedical of HAKARI-Bench: ten medical sets in four languages of up to 200 queries and 10,000 documents."""

from __future__ import annotations

from typing import Any

from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.retrieval_dataset_loaders import RetrievalDatasetLoader
from mteb.abstasks.task_metadata import TaskMetadata


class _Loader(RetrievalDatasetLoader):
    """For qrels without scores: all are positives. Not needed once the data are reuploaded."""

    def _load_dataset_split(self, config: str, num_proc: int | None) -> Any:
        dataset = super()._load_dataset_split(config, num_proc)
        if config == "qrels" and "score" not in dataset.column_names:
            dataset = dataset.add_column("score", [1] * len(dataset))
        return dataset


class _NanoMedicalRetrieval(AbsTaskRetrieval):
    def load_data(self, num_proc: int | None = None, **kwargs: Any) -> None:
        if self.data_loaded:
            return
        data = self.metadata.dataset
        split = self.metadata.eval_splits[0]
        loader = _Loader(data["path"], data["revision"], split=split)
        self.dataset = {"default": {split: loader.load(num_proc)}}
        self.data_loaded = True


class NanoMedicalCMedQAv2Retrieval(_NanoMedicalRetrieval):
    metadata = TaskMetadata(
        name="NanoMedicalCMedQAv2Retrieval",
        description="Split NanoCMedQAv2reranking of NanoMedical (HAKARI-Bench): 200 queries, 10,000 documents, over the whole corpus of the split. Sampled from the source of CMedQAv2-reranking; its card names no data set and no revision. The revision of hakari-bench/NanoMedical is not pinned: no source gives one.",
        reference="https://arxiv.org/abs/2606.22778",
        dataset={"path": "hakari-bench/NanoMedical", "revision": "main"},
        type="Retrieval",
        category="t2t",
        modalities=["text"],
        eval_splits=["NanoCMedQAv2reranking"],
        eval_langs=["cmn-Hans"],
        main_score="ndcg_at_10",
        date=("2017-01-01", "2018-12-31"),
        domains=["Medical", "Written"],
        task_subtypes=["Question answering"],
        license="not specified",
        annotations_creators="expert-annotated",
        dialect=[],
        sample_creation="found",
        prompt={
            "query": "Given a Chinese community medical question, retrieve replies that best answer the question"
        },
        adapted_from=["CMedQAv2-reranking"],
        bibtex_citation=r"""
@article{8548603,
  author = {S. Zhang and X. Zhang and H. Wang and L. Guo and S. Liu},
  doi = {10.1109/ACCESS.2018.2883637},
  issn = {2169-3536},
  journal = {IEEE Access},
  keywords = {Biomedical imaging;Data mining;Semantics;Medical services;Feature extraction;Knowledge discovery;Medical question answering;interactive attention;deep learning;deep neural networks},
  month = {},
  number = {},
  pages = {74061-74071},
  title = {Multi-Scale Attentive Interaction Networks for Chinese Medical Question Answer Selection},
  volume = {6},
  year = {2018},
}

@misc{tateno2026hakaribench,
  archiveprefix = {arXiv},
  author = {Yuichi Tateno},
  eprint = {2606.22778},
  primaryclass = {cs.IR},
  title = {HAKARI-Bench: A Lightweight Benchmark for Comparing Retrieval Architectures and Efficiency Settings under Unified Conditions},
  url = {https://arxiv.org/abs/2606.22778},
  year = {2026},
}
""",
    )


class NanoMedicalCmedqaRetrieval(_NanoMedicalRetrieval):
    metadata = TaskMetadata(
        name="NanoMedicalCmedqaRetrieval",
        description="Split NanoCmedqa of NanoMedical (HAKARI-Bench): 200 queries, 10,000 documents, over the whole corpus of the split. Sampled from the source of CmedqaRetrieval; its card names no data set and no revision. The revision of hakari-bench/NanoMedical is not pinned: no source gives one.",
        reference="https://arxiv.org/abs/2606.22778",
        dataset={"path": "hakari-bench/NanoMedical", "revision": "main"},
        type="Retrieval",
        category="t2t",
        modalities=["text"],
        eval_splits=["NanoCmedqa"],
        eval_langs=["cmn-Hans"],
        main_score="ndcg_at_10",
        date=("2017-01-01", "2022-12-31"),
        domains=["Medical", "Written"],
        task_subtypes=["Question answering"],
        license="not specified",
        annotations_creators="human-annotated",
        dialect=[],
        sample_creation="found",
        prompt={
            "query": "Given a Chinese community medical question, retrieve replies that best answer the question"
        },
        adapted_from=["CmedqaRetrieval"],
        bibtex_citation=r"""
@misc{qiu2022dureaderretrievallargescalechinesebenchmark,
  archiveprefix = {arXiv},
  author = {Yifu Qiu and Hongyu Li and Yingqi Qu and Ying Chen and Qiaoqiao She and Jing Liu and Hua Wu and Haifeng Wang},
  eprint = {2203.10232},
  primaryclass = {cs.CL},
  title = {DuReader_retrieval: A Large-scale Chinese Benchmark for Passage Retrieval from Web Search Engine},
  url = {https://arxiv.org/abs/2203.10232},
  year = {2022},
}

@misc{tateno2026hakaribench,
  archiveprefix = {arXiv},
  author = {Yuichi Tateno},
  eprint = {2606.22778},
  primaryclass = {cs.IR},
  title = {HAKARI-Bench: A Lightweight Benchmark for Comparing Retrieval Architectures and Efficiency Settings under Unified Conditions},
  url = {https://arxiv.org/abs/2606.22778},
  year = {2026},
}
""",
    )


class NanoMedicalCUREv1Retrieval(_NanoMedicalRetrieval):
    metadata = TaskMetadata(
        name="NanoMedicalCUREv1Retrieval",
        description="Split NanoCUREv1 of NanoMedical (HAKARI-Bench): 200 queries, 10,000 documents, over the whole corpus of the split. Sampled from the source of CUREv1; its card names no data set and no revision. The revision of hakari-bench/NanoMedical is not pinned: no source gives one.",
        reference="https://arxiv.org/abs/2606.22778",
        dataset={"path": "hakari-bench/NanoMedical", "revision": "main"},
        type="Retrieval",
        category="t2t",
        modalities=["text"],
        eval_splits=["NanoCUREv1"],
        eval_langs=["eng-Latn"],
        main_score="ndcg_at_10",
        date=("2024-01-01", "2024-10-31"),
        domains=["Medical", "Academic", "Written"],
        task_subtypes=[],
        license="cc-by-nc-4.0",
        annotations_creators="expert-annotated",
        dialect=[],
        sample_creation="created",
        prompt={
            "query": "Given a question by a medical professional, retrieve relevant passages that best answer the question"
        },
        adapted_from=["CUREv1"],
        bibtex_citation=r"""
@misc{tateno2026hakaribench,
  archiveprefix = {arXiv},
  author = {Yuichi Tateno},
  eprint = {2606.22778},
  primaryclass = {cs.IR},
  title = {HAKARI-Bench: A Lightweight Benchmark for Comparing Retrieval Architectures and Efficiency Settings under Unified Conditions},
  url = {https://arxiv.org/abs/2606.22778},
  year = {2026},
}
""",
    )


class NanoMedicalMedicalQARetrieval(_NanoMedicalRetrieval):
    metadata = TaskMetadata(
        name="NanoMedicalMedicalQARetrieval",
        description="Split NanoMedicalQA of NanoMedical (HAKARI-Bench): 200 queries, 2,007 documents, over the whole corpus of the split. Sampled from the source of MedicalQARetrieval; its card names no data set and no revision. The revision of hakari-bench/NanoMedical is not pinned: no source gives one.",
        reference="https://arxiv.org/abs/2606.22778",
        dataset={"path": "hakari-bench/NanoMedical", "revision": "main"},
        type="Retrieval",
        category="t2t",
        modalities=["text"],
        eval_splits=["NanoMedicalQA"],
        eval_langs=["eng-Latn"],
        main_score="ndcg_at_10",
        date=("2017-01-01", "2019-12-31"),
        domains=["Medical", "Written"],
        task_subtypes=["Article retrieval"],
        license="cc0-1.0",
        annotations_creators="derived",
        dialect=[],
        sample_creation="found",
        adapted_from=["MedicalQARetrieval"],
        bibtex_citation=r"""
@article{ben2019question,
  author = {Ben Abacha, Asma and Demner-Fushman, Dina},
  journal = {BMC bioinformatics},
  number = {1},
  pages = {511},
  publisher = {Springer},
  title = {A question-entailment approach to question answering},
  volume = {20},
  year = {2019},
}

@misc{tateno2026hakaribench,
  archiveprefix = {arXiv},
  author = {Yuichi Tateno},
  eprint = {2606.22778},
  primaryclass = {cs.IR},
  title = {HAKARI-Bench: A Lightweight Benchmark for Comparing Retrieval Architectures and Efficiency Settings under Unified Conditions},
  url = {https://arxiv.org/abs/2606.22778},
  year = {2026},
}
""",
    )


class NanoMedicalNFCorpusRetrieval(_NanoMedicalRetrieval):
    metadata = TaskMetadata(
        name="NanoMedicalNFCorpusRetrieval",
        description="Split NanoNFCorpus of NanoMedical (HAKARI-Bench): 200 queries, 3,593 documents, over the whole corpus of the split. Sampled from the source of NFCorpus; its card names no data set and no revision. The revision of hakari-bench/NanoMedical is not pinned: no source gives one.",
        reference="https://arxiv.org/abs/2606.22778",
        dataset={"path": "hakari-bench/NanoMedical", "revision": "main"},
        type="Retrieval",
        category="t2t",
        modalities=["text"],
        eval_splits=["NanoNFCorpus"],
        eval_langs=["eng-Latn"],
        main_score="ndcg_at_10",
        date=("2016-01-01", "2016-12-31"),
        domains=["Medical", "Academic", "Written"],
        task_subtypes=[],
        license="not specified",
        annotations_creators="derived",
        dialect=[],
        sample_creation="found",
        prompt={
            "query": "Given a question, retrieve relevant documents that best answer the question"
        },
        adapted_from=["NFCorpus"],
        bibtex_citation=r"""
@inproceedings{boteva2016,
  author = {Boteva, Vera and Gholipour, Demian and Sokolov, Artem and Riezler, Stefan},
  city = {Padova},
  country = {Italy},
  journal = {Proceedings of the 38th European Conference on Information Retrieval},
  journal-abbrev = {ECIR},
  title = {A Full-Text Learning to Rank Dataset for Medical Information Retrieval},
  url = {http://www.cl.uni-heidelberg.de/~riezler/publications/papers/ECIR2016.pdf},
  year = {2016},
}

@misc{tateno2026hakaribench,
  archiveprefix = {arXiv},
  author = {Yuichi Tateno},
  eprint = {2606.22778},
  primaryclass = {cs.IR},
  title = {HAKARI-Bench: A Lightweight Benchmark for Comparing Retrieval Architectures and Efficiency Settings under Unified Conditions},
  url = {https://arxiv.org/abs/2606.22778},
  year = {2026},
}
""",
    )


class NanoMedicalPublicHealthQARetrieval(_NanoMedicalRetrieval):
    metadata = TaskMetadata(
        name="NanoMedicalPublicHealthQARetrieval",
        description="Split NanoPublicHealthQA of NanoMedical (HAKARI-Bench): 86 queries, 86 documents, over the whole corpus of the split. Sampled from the source of PublicHealthQA; its card names no data set and no revision. The revision of hakari-bench/NanoMedical is not pinned: no source gives one.",
        reference="https://arxiv.org/abs/2606.22778",
        dataset={"path": "hakari-bench/NanoMedical", "revision": "main"},
        type="Retrieval",
        category="t2t",
        modalities=["text"],
        eval_splits=["NanoPublicHealthQA"],
        eval_langs=["ara-Arab"],
        main_score="ndcg_at_10",
        date=("2020-01-01", "2020-04-15"),
        domains=["Medical", "Government", "Web", "Written"],
        task_subtypes=["Question answering"],
        license="cc-by-nc-sa-3.0",
        annotations_creators="derived",
        dialect=[],
        sample_creation="found",
        adapted_from=["PublicHealthQA"],
        bibtex_citation=r"""
@misc{tateno2026hakaribench,
  archiveprefix = {arXiv},
  author = {Yuichi Tateno},
  eprint = {2606.22778},
  primaryclass = {cs.IR},
  title = {HAKARI-Bench: A Lightweight Benchmark for Comparing Retrieval Architectures and Efficiency Settings under Unified Conditions},
  url = {https://arxiv.org/abs/2606.22778},
  year = {2026},
}

@misc{xing_han_lu_2024,
  author = { {Xing Han Lu} },
  doi = { 10.57967/hf/2247 },
  publisher = { Hugging Face },
  title = { publichealth-qa (Revision 3b67b6b) },
  url = { https://huggingface.co/datasets/xhluca/publichealth-qa },
  year = {2024},
}
""",
    )


class NanoMedicalSciFactRetrieval(_NanoMedicalRetrieval):
    metadata = TaskMetadata(
        name="NanoMedicalSciFactRetrieval",
        description="Split NanoSciFact of NanoMedical (HAKARI-Bench): 200 queries, 5,183 documents, over the whole corpus of the split. Sampled from the source of SciFact; its card names no data set and no revision. The revision of hakari-bench/NanoMedical is not pinned: no source gives one.",
        reference="https://arxiv.org/abs/2606.22778",
        dataset={"path": "hakari-bench/NanoMedical", "revision": "main"},
        type="Retrieval",
        category="t2t",
        modalities=["text"],
        eval_splits=["NanoSciFact"],
        eval_langs=["eng-Latn"],
        main_score="ndcg_at_10",
        date=("2020-01-01", "2020-12-31"),
        domains=["Academic", "Medical", "Written"],
        task_subtypes=["Claim verification"],
        license="cc-by-nc-4.0",
        annotations_creators="expert-annotated",
        dialect=[],
        sample_creation="found",
        prompt={
            "query": "Given a scientific claim, retrieve documents that support or refute the claim"
        },
        adapted_from=["SciFact"],
        bibtex_citation=r"""
@inproceedings{specter2020cohan,
  author = {Arman Cohan and Sergey Feldman and Iz Beltagy and Doug Downey and Daniel S. Weld},
  booktitle = {ACL},
  title = {SPECTER: Document-level Representation Learning using Citation-informed Transformers},
  year = {2020},
}

@misc{tateno2026hakaribench,
  archiveprefix = {arXiv},
  author = {Yuichi Tateno},
  eprint = {2606.22778},
  primaryclass = {cs.IR},
  title = {HAKARI-Bench: A Lightweight Benchmark for Comparing Retrieval Architectures and Efficiency Settings under Unified Conditions},
  url = {https://arxiv.org/abs/2606.22778},
  year = {2026},
}
""",
    )


class NanoMedicalSciFactPLRetrieval(_NanoMedicalRetrieval):
    metadata = TaskMetadata(
        name="NanoMedicalSciFactPLRetrieval",
        description="Split NanoSciFactPL of NanoMedical (HAKARI-Bench): 200 queries, 5,183 documents, over the whole corpus of the split. Sampled from the source of SciFact-PL; its card names no data set and no revision. The revision of hakari-bench/NanoMedical is not pinned: no source gives one.",
        reference="https://arxiv.org/abs/2606.22778",
        dataset={"path": "hakari-bench/NanoMedical", "revision": "main"},
        type="Retrieval",
        category="t2t",
        modalities=["text"],
        eval_splits=["NanoSciFactPL"],
        eval_langs=["pol-Latn"],
        main_score="ndcg_at_10",
        date=("2023-05-01", "2024-12-31"),
        domains=["Academic", "Medical", "Written"],
        task_subtypes=["Article retrieval"],
        license="cc-by-sa-4.0",
        annotations_creators="derived",
        dialect=[],
        sample_creation="machine-translated",
        adapted_from=["SciFact-PL"],
        bibtex_citation=r"""
@misc{tateno2026hakaribench,
  archiveprefix = {arXiv},
  author = {Yuichi Tateno},
  eprint = {2606.22778},
  primaryclass = {cs.IR},
  title = {HAKARI-Bench: A Lightweight Benchmark for Comparing Retrieval Architectures and Efficiency Settings under Unified Conditions},
  url = {https://arxiv.org/abs/2606.22778},
  year = {2026},
}

@misc{wojtasik2024beirpl,
  archiveprefix = {arXiv},
  author = {Konrad Wojtasik and Vadim Shishkin and Kacper Wołowiec and Arkadiusz Janz and Maciej Piasecki},
  eprint = {2305.19840},
  primaryclass = {cs.IR},
  title = {BEIR-PL: Zero Shot Information Retrieval Benchmark for the Polish Language},
  year = {2024},
}
""",
    )


class NanoMedicalTRECCOVIDRetrieval(_NanoMedicalRetrieval):
    metadata = TaskMetadata(
        name="NanoMedicalTRECCOVIDRetrieval",
        description="Split NanoTRECCOVID of NanoMedical (HAKARI-Bench): 50 queries, 10,000 documents, over the whole corpus of the split. Sampled from the source of TRECCOVID; its card names no data set and no revision. The revision of hakari-bench/NanoMedical is not pinned: no source gives one.",
        reference="https://arxiv.org/abs/2606.22778",
        dataset={"path": "hakari-bench/NanoMedical", "revision": "main"},
        type="Retrieval",
        category="t2t",
        modalities=["text"],
        eval_splits=["NanoTRECCOVID"],
        eval_langs=["eng-Latn"],
        main_score="ndcg_at_10",
        date=("2020-01-01", "2021-12-31"),
        domains=["Medical", "Academic", "Written"],
        task_subtypes=["Article retrieval"],
        license="not specified",
        annotations_creators="expert-annotated",
        dialect=[],
        sample_creation="found",
        prompt={
            "query": "Given a query on COVID-19, retrieve documents that answer the query"
        },
        adapted_from=["TRECCOVID"],
        bibtex_citation=r"""
@misc{roberts2021searching,
  archiveprefix = {arXiv},
  author = {Kirk Roberts and Tasmeer Alam and Steven Bedrick and Dina Demner-Fushman and Kyle Lo and Ian Soboroff and Ellen Voorhees and Lucy Lu Wang and William R Hersh},
  eprint = {2104.09632},
  primaryclass = {cs.IR},
  title = {Searching for Scientific Evidence in a Pandemic: An Overview of TREC-COVID},
  year = {2021},
}

@misc{tateno2026hakaribench,
  archiveprefix = {arXiv},
  author = {Yuichi Tateno},
  eprint = {2606.22778},
  primaryclass = {cs.IR},
  title = {HAKARI-Bench: A Lightweight Benchmark for Comparing Retrieval Architectures and Efficiency Settings under Unified Conditions},
  url = {https://arxiv.org/abs/2606.22778},
  year = {2026},
}
""",
    )


class NanoMedicalTRECCOVIDPLRetrieval(_NanoMedicalRetrieval):
    metadata = TaskMetadata(
        name="NanoMedicalTRECCOVIDPLRetrieval",
        description="Split NanoTRECCOVIDPL of NanoMedical (HAKARI-Bench): 50 queries, 10,000 documents, over the whole corpus of the split. Sampled from the source of TRECCOVID-PL; its card names no data set and no revision. The revision of hakari-bench/NanoMedical is not pinned: no source gives one.",
        reference="https://arxiv.org/abs/2606.22778",
        dataset={"path": "hakari-bench/NanoMedical", "revision": "main"},
        type="Retrieval",
        category="t2t",
        modalities=["text"],
        eval_splits=["NanoTRECCOVIDPL"],
        eval_langs=["pol-Latn"],
        main_score="ndcg_at_10",
        date=("2019-12-01", "2022-12-31"),
        domains=["Academic", "Medical", "Non-fiction", "Written"],
        task_subtypes=["Article retrieval"],
        license="not specified",
        annotations_creators="derived",
        dialect=[],
        sample_creation="machine-translated",
        adapted_from=["TRECCOVID-PL"],
        bibtex_citation=r"""
@misc{tateno2026hakaribench,
  archiveprefix = {arXiv},
  author = {Yuichi Tateno},
  eprint = {2606.22778},
  primaryclass = {cs.IR},
  title = {HAKARI-Bench: A Lightweight Benchmark for Comparing Retrieval Architectures and Efficiency Settings under Unified Conditions},
  url = {https://arxiv.org/abs/2606.22778},
  year = {2026},
}

@misc{wojtasik2024beirpl,
  archiveprefix = {arXiv},
  author = {Konrad Wojtasik and Vadim Shishkin and Kacper Wołowiec and Arkadiusz Janz and Maciej Piasecki},
  eprint = {2305.19840},
  primaryclass = {cs.IR},
  title = {BEIR-PL: Zero Shot Information Retrieval Benchmark for the Polish Language},
  year = {2024},
}
""",
    )
