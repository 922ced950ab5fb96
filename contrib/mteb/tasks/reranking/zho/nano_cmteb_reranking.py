"""NanoCMTEB of HAKARI-Bench: eight Chinese sets of up to 200 queries and 10,000 documents."""

from __future__ import annotations

from typing import Any

from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.retrieval_dataset_loaders import RetrievalDatasetLoader
from mteb.abstasks.task_metadata import TaskMetadata


class _Loader(RetrievalDatasetLoader):
    """For qrels without scores (all are positives) and the published name of the candidates.

    Not needed once the data are reuploaded.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.dataset_configs = [*self.dataset_configs, "top_ranked"]

    def _load_dataset_split(self, config: str, num_proc: int | None) -> Any:
        name = "reranking_hybrid" if config == "top_ranked" else config
        dataset = super()._load_dataset_split(name, num_proc)
        if config == "qrels" and "score" not in dataset.column_names:
            dataset = dataset.add_column("score", [1] * len(dataset))
        return dataset


class _NanoCMTEBReranking(AbsTaskRetrieval):
    def load_data(self, num_proc: int | None = None, **kwargs: Any) -> None:
        if self.data_loaded:
            return
        data = self.metadata.dataset
        split = self.metadata.eval_splits[0]
        loader = _Loader(data["path"], data["revision"], split=split)
        self.dataset = {"default": {split: loader.load(num_proc)}}
        self.data_loaded = True


class NanoCMTEBMedicalReranking(_NanoCMTEBReranking):
    metadata = TaskMetadata(
        name="NanoCMTEBMedicalReranking",
        description="Split medical of NanoCMTEB (HAKARI-Bench): 200 queries, 10,000 documents, over 100 candidates fused from BM25 and a dense model; where none of them is relevant, one relevant document is a 101st (the safeguard). Sampled from mteb/MedicalRetrieval at 023ae3b2c6b96f583c4ff9b3f9239c93f7885c20, split dev. The revision of hakari-bench/NanoCMTEB is not pinned: no source gives one.",
        reference="https://arxiv.org/abs/2606.22778",
        dataset={"path": "hakari-bench/NanoCMTEB", "revision": "main"},
        type="Reranking",
        category="t2t",
        modalities=["text"],
        eval_splits=["medical"],
        eval_langs=["cmn-Hans"],
        main_score="ndcg_at_10",
        date=("2022-03-01", "2022-12-31"),
        domains=["Medical", "Written"],
        task_subtypes=["Question answering"],
        license="not specified",
        annotations_creators="human-annotated",
        dialect=[],
        sample_creation="found",
        prompt={
            "query": "Given a medical question, retrieve user replies that best answer the question"
        },
        adapted_from=["MedicalRetrieval"],
        bibtex_citation=r"""
@misc{long2022multicprmultidomainchinese,
  archiveprefix = {arXiv},
  author = {Dingkun Long and Qiong Gao and Kuan Zou and Guangwei Xu and Pengjun Xie and Ruijie Guo and Jian Xu and Guanjun Jiang and Luxi Xing and Ping Yang},
  eprint = {2203.03367},
  primaryclass = {cs.IR},
  title = {Multi-CPR: A Multi Domain Chinese Dataset for Passage Retrieval},
  url = {https://arxiv.org/abs/2203.03367},
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


class NanoCMTEBCmedqaReranking(_NanoCMTEBReranking):
    metadata = TaskMetadata(
        name="NanoCMTEBCmedqaReranking",
        description="Split cmedqa of NanoCMTEB (HAKARI-Bench): 200 queries, 10,000 documents, over 100 candidates fused from BM25 and a dense model; where none of them is relevant, one relevant document is a 101st (the safeguard). Sampled from mteb/CmedqaRetrieval at c476f85bf03d6642ec66bf54b9a551c88108bbb4, split dev. The revision of hakari-bench/NanoCMTEB is not pinned: no source gives one.",
        reference="https://arxiv.org/abs/2606.22778",
        dataset={"path": "hakari-bench/NanoCMTEB", "revision": "main"},
        type="Reranking",
        category="t2t",
        modalities=["text"],
        eval_splits=["cmedqa"],
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


class NanoCMTEBCovidReranking(_NanoCMTEBReranking):
    metadata = TaskMetadata(
        name="NanoCMTEBCovidReranking",
        description="Split covid of NanoCMTEB (HAKARI-Bench): 200 queries, 10,000 documents, over 100 candidates fused from BM25 and a dense model; where none of them is relevant, one relevant document is a 101st (the safeguard). Sampled from mteb/CovidRetrieval at 9c6dc4b276bb47c3ff725bbc5ffcafd56dded38b, split dev. The revision of hakari-bench/NanoCMTEB is not pinned: no source gives one.",
        reference="https://arxiv.org/abs/2606.22778",
        dataset={"path": "hakari-bench/NanoCMTEB", "revision": "main"},
        type="Reranking",
        category="t2t",
        modalities=["text"],
        eval_splits=["covid"],
        eval_langs=["cmn-Hans"],
        main_score="ndcg_at_10",
        date=("2022-03-03", "2022-03-18"),
        domains=["Medical", "Entertainment"],
        task_subtypes=[],
        license="not specified",
        annotations_creators="human-annotated",
        dialect=[],
        sample_creation="found",
        prompt={
            "query": "Given a question on COVID-19, retrieve news articles that answer the question"
        },
        adapted_from=["CovidRetrieval"],
        bibtex_citation=r"""
@misc{long2022multicprmultidomainchinese,
  archiveprefix = {arXiv},
  author = {Dingkun Long and Qiong Gao and Kuan Zou and Guangwei Xu and Pengjun Xie and Ruijie Guo and Jian Xu and Guanjun Jiang and Luxi Xing and Ping Yang},
  eprint = {2203.03367},
  primaryclass = {cs.IR},
  title = {Multi-CPR: A Multi Domain Chinese Dataset for Passage Retrieval},
  url = {https://arxiv.org/abs/2203.03367},
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


class NanoCMTEBDuReranking(_NanoCMTEBReranking):
    metadata = TaskMetadata(
        name="NanoCMTEBDuReranking",
        description="Split du of NanoCMTEB (HAKARI-Bench): 200 queries, 10,000 documents, over 100 candidates fused from BM25 and a dense model; where none of them is relevant, one relevant document is a 101st (the safeguard). Sampled from mteb/DuRetrieval at 313c81b51311893c8fd09ca432f96b841ed0ebb3, split dev. The revision of hakari-bench/NanoCMTEB is not pinned: no source gives one.",
        reference="https://arxiv.org/abs/2606.22778",
        dataset={"path": "hakari-bench/NanoCMTEB", "revision": "main"},
        type="Reranking",
        category="t2t",
        modalities=["text"],
        eval_splits=["du"],
        eval_langs=["cmn-Hans"],
        main_score="ndcg_at_10",
        date=("2022-03-01", "2022-12-31"),
        domains=["Web", "Written"],
        task_subtypes=["Question answering"],
        license="apache-2.0",
        annotations_creators="human-annotated",
        dialect=[],
        sample_creation="found",
        prompt={
            "query": "Given a Chinese search query, retrieve web passages that answer the question"
        },
        adapted_from=["DuRetrieval"],
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


class NanoCMTEBEcomReranking(_NanoCMTEBReranking):
    metadata = TaskMetadata(
        name="NanoCMTEBEcomReranking",
        description="Split ecom of NanoCMTEB (HAKARI-Bench): 200 queries, 10,000 documents, over 100 candidates fused from BM25 and a dense model; where none of them is relevant, one relevant document is a 101st (the safeguard). Sampled from mteb/EcomRetrieval at fa705ce5418e91636b1eaeaf43f34c15aa3f5a8a, split dev. The revision of hakari-bench/NanoCMTEB is not pinned: no source gives one.",
        reference="https://arxiv.org/abs/2606.22778",
        dataset={"path": "hakari-bench/NanoCMTEB", "revision": "main"},
        type="Reranking",
        category="t2t",
        modalities=["text"],
        eval_splits=["ecom"],
        eval_langs=["cmn-Hans"],
        main_score="ndcg_at_10",
        date=("2022-03-01", "2022-12-31"),
        domains=["Reviews", "Written"],
        task_subtypes=["Query-Product Relevance"],
        license="not specified",
        annotations_creators="human-annotated",
        dialect=[],
        sample_creation="found",
        prompt={
            "query": "Given a user query from an e-commerce website, retrieve description sentences of relevant products"
        },
        adapted_from=["EcomRetrieval"],
        bibtex_citation=r"""
@misc{long2022multicprmultidomainchinese,
  archiveprefix = {arXiv},
  author = {Dingkun Long and Qiong Gao and Kuan Zou and Guangwei Xu and Pengjun Xie and Ruijie Guo and Jian Xu and Guanjun Jiang and Luxi Xing and Ping Yang},
  eprint = {2203.03367},
  primaryclass = {cs.IR},
  title = {Multi-CPR: A Multi Domain Chinese Dataset for Passage Retrieval},
  url = {https://arxiv.org/abs/2203.03367},
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


class NanoCMTEBMMarcoReranking(_NanoCMTEBReranking):
    metadata = TaskMetadata(
        name="NanoCMTEBMMarcoReranking",
        description="Split mmarco of NanoCMTEB (HAKARI-Bench): 200 queries, 10,000 documents, over 100 candidates fused from BM25 and a dense model; where none of them is relevant, one relevant document is a 101st (the safeguard). Sampled from mteb/MMarcoRetrieval at 4940a7b26bf53463cfe3435bb8e201963e9c31ae, split dev. The revision of hakari-bench/NanoCMTEB is not pinned: no source gives one.",
        reference="https://arxiv.org/abs/2606.22778",
        dataset={"path": "hakari-bench/NanoCMTEB", "revision": "main"},
        type="Reranking",
        category="t2t",
        modalities=["text"],
        eval_splits=["mmarco"],
        eval_langs=["cmn-Hans"],
        main_score="ndcg_at_10",
        date=("2023-09-01", "2024-12-31"),
        domains=["Web", "Written"],
        task_subtypes=["Question answering"],
        license="not specified",
        annotations_creators="derived",
        dialect=[],
        sample_creation="machine-translated",
        prompt={
            "query": "Given a web search query, retrieve relevant passages that answer the query"
        },
        adapted_from=["MMarcoRetrieval"],
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

@misc{xiao2024cpackpackedresourcesgeneral,
  archiveprefix = {arXiv},
  author = {Shitao Xiao and Zheng Liu and Peitian Zhang and Niklas Muennighoff and Defu Lian and Jian-Yun Nie},
  eprint = {2309.07597},
  primaryclass = {cs.CL},
  title = {C-Pack: Packed Resources For General Chinese Embeddings},
  url = {https://arxiv.org/abs/2309.07597},
  year = {2024},
}
""",
    )


class NanoCMTEBT2Reranking(_NanoCMTEBReranking):
    metadata = TaskMetadata(
        name="NanoCMTEBT2Reranking",
        description="Split t2 of NanoCMTEB (HAKARI-Bench): 200 queries, 10,000 documents, over 100 candidates fused from BM25 and a dense model; where none of them is relevant, one relevant document is a 101st (the safeguard). Sampled from mteb/T2Retrieval at cf778c0ea4168ec5174a34d888d6453e4cde9222, split dev. The revision of hakari-bench/NanoCMTEB is not pinned: no source gives one.",
        reference="https://arxiv.org/abs/2606.22778",
        dataset={"path": "hakari-bench/NanoCMTEB", "revision": "main"},
        type="Reranking",
        category="t2t",
        modalities=["text"],
        eval_splits=["t2"],
        eval_langs=["cmn-Hans"],
        main_score="ndcg_at_10",
        date=("2023-04-04", "2023-05-16"),
        domains=["Medical", "Academic", "Financial", "Government", "Non-fiction"],
        task_subtypes=[],
        license="apache-2.0",
        annotations_creators="human-annotated",
        dialect=[],
        sample_creation="found",
        prompt={
            "query": "Given a Chinese search query, retrieve web passages that answer the question"
        },
        adapted_from=["T2Retrieval"],
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

@misc{xie2023t2ranking,
  archiveprefix = {arXiv},
  author = {Xiaohui Xie and Qian Dong and Bingning Wang and Feiyang Lv and Ting Yao and Weinan Gan and Zhijing Wu and Xiangsheng Li and Haitao Li and Yiqun Liu and Jin Ma},
  eprint = {2304.03679},
  primaryclass = {cs.IR},
  title = {T2Ranking: A large-scale Chinese Benchmark for Passage Ranking},
  year = {2023},
}
""",
    )


class NanoCMTEBVideoReranking(_NanoCMTEBReranking):
    metadata = TaskMetadata(
        name="NanoCMTEBVideoReranking",
        description="Split video of NanoCMTEB (HAKARI-Bench): 200 queries, 10,000 documents, over 100 candidates fused from BM25 and a dense model; where none of them is relevant, one relevant document is a 101st (the safeguard). Sampled from mteb/VideoRetrieval at 146a9d5e4fd7a9c182b6b92cccb6a3753994305c, split dev. The revision of hakari-bench/NanoCMTEB is not pinned: no source gives one.",
        reference="https://arxiv.org/abs/2606.22778",
        dataset={"path": "hakari-bench/NanoCMTEB", "revision": "main"},
        type="Reranking",
        category="t2t",
        modalities=["text"],
        eval_splits=["video"],
        eval_langs=["cmn-Hans"],
        main_score="ndcg_at_10",
        date=("2022-03-01", "2022-12-31"),
        domains=["Entertainment", "Written"],
        task_subtypes=["Article retrieval"],
        license="not specified",
        annotations_creators="human-annotated",
        dialect=[],
        sample_creation="found",
        prompt={
            "query": "Given a video search query, retrieve the titles of relevant videos"
        },
        adapted_from=["VideoRetrieval"],
        bibtex_citation=r"""
@misc{long2022multicprmultidomainchinese,
  archiveprefix = {arXiv},
  author = {Dingkun Long and Qiong Gao and Kuan Zou and Guangwei Xu and Pengjun Xie and Ruijie Guo and Jian Xu and Guanjun Jiang and Luxi Xing and Ping Yang},
  eprint = {2203.03367},
  primaryclass = {cs.IR},
  title = {Multi-CPR: A Multi Domain Chinese Dataset for Passage Retrieval},
  url = {https://arxiv.org/abs/2203.03367},
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
