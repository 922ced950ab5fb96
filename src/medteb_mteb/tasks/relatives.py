"""English retrieval with raw files from public repositories: graded MedQuAD, and the sets of BMRetriever.

If a set differs from the published one, its name or description says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mteb.abstasks.task_metadata import TaskMetadata
from mteb.tasks import BiossesSTS

from medteb_mteb.abstasks.judged import JudgedRetrieval
from medteb_mteb.tasks._built import NOT_BUILT, BuiltTask
from medteb_mteb.tasks.citations import cite

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mteb.abstasks.abstask import AbsTask

__all__ = ["BMRETRIEVER_SETS", "RELATIVES", "REPLACED_BIOSSES", "BIOSSESLocal", "MedQuADLiveQARetrieval"]

BMRETRIEVER = "https://aclanthology.org/2024.emnlp-main.1241/"
BMRETRIEVER_CITATION = r"""
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
"""  # noqa: E501
MEDQUAD_CITATION = r"""
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
"""
BIOASQ_CITATION = r"""
@article{tsatsaronis2015overview,
  author = {Tsatsaronis, George and Balikas, Georgios and Malakasiotis, Prodromos and Partalas, Ioannis and Zschunke, Matthias and Alvers, Michael R. and Weissenborn, Dirk and Krithara, Anastasia and Petridis, Sergios and Polychronopoulos, Dimitris and others},
  journal = {BMC Bioinformatics},
  number = {1},
  pages = {138},
  title = {An overview of the {BIOASQ} large-scale biomedical semantic indexing and question answering competition},
  volume = {16},
  year = {2015},
}
"""  # noqa: E501


def _metadata(name: str, description: str, *, main_score: str, reference: str, **fields: Any) -> TaskMetadata:
    content: dict[str, Any] = {
        "type": "Retrieval",
        "category": "t2t",
        "modalities": ["text"],
        "eval_splits": ["test"],
        "eval_langs": ["eng-Latn"],
        "domains": ["Medical", "Written"],
        "dialect": [],
        "sample_creation": "found",
        "license": "not specified",
        "bibtex_citation": BMRETRIEVER_CITATION,
        **fields,
    }
    return TaskMetadata(
        name=name,
        description=description,
        main_score=main_score,
        reference=reference,
        dataset={"path": f"medteb/{name}", "revision": NOT_BUILT},
        **content,
    )


class MedQuADLiveQARetrieval(BuiltTask, JudgedRetrieval):
    """Answers to consumer health questions with grades by people, graded nDCG@10."""

    sources = (
        "MedQuAD (github.com/abachaa/MedQuAD) and the LiveQA test questions "
        "(github.com/abachaa/LiveQA_MedicalTask_TREC2017)"
    )
    built_size = (94, 17_856)
    metadata = _metadata(
        "MedQuADLiveQARetrieval",
        "Consumer health questions of TREC 2017 LiveQA against the answers of MedQuAD, graded by people: "
        "1 incorrect, 2 related, 3 incomplete, 4 excellent. The gains of nDCG are 0, 1, 2 and 3.",
        main_score="ndcg_at_10",
        reference="https://doi.org/10.1186/s12859-019-3119-4",
        date=("2017-01-01", "2019-10-22"),
        task_subtypes=["Question Answering Retrieval"],
        license="cc-by-4.0",
        annotations_creators="expert-annotated",
        prompt={"query": "Given a consumer health question, retrieve answers from trusted medical sources"},
        bibtex_citation=MEDQUAD_CITATION,
    )


class BioASQ500SnippetsRetrieval(BuiltTask, JudgedRetrieval):
    """BEIR's 500 BioASQ topics over documents cut to the snippets that experts marked."""

    sources = (
        "the golden batches 7B to 11B of BioASQ (github.com/Teddy-XiongGZ/MIRAGE, rawdata/bioasq) and BEIR's "
        "topics and qrels (github.com/castorini/anserini-tools)"
    )
    built_size = (500, 13_449)
    metadata = _metadata(
        "BioASQ500SnippetsRetrieval",
        "The 500 BioASQ topics of BEIR. The corpus is made of the snippets that experts marked in "
        "documents for BioASQ 7B to 11B: neither PubMed nor BMRetriever's 500,000 documents.",
        main_score="ndcg_at_20",
        reference=BMRETRIEVER,
        date=("2019-01-01", "2023-12-31"),
        task_subtypes=["Question Answering Retrieval"],
        annotations_creators="expert-annotated",
        prompt={"query": "Given a question, retrieve Pubmed passages that answer the question"},
        bibtex_citation=cite(BMRETRIEVER_CITATION, BIOASQ_CITATION),
    )


class PubMedQA500Retrieval(BuiltTask, JudgedRetrieval):
    """The test questions of PubMedQA over abstracts without conclusions."""

    sources = (
        "PubMedQA's test split (github.com/Teddy-XiongGZ/MIRAGE, rawdata/pubmedqa) and labelled questions "
        "(github.com/pubmedqa/pubmedqa)"
    )
    built_size = (500, 1_000)
    metadata = _metadata(
        "PubMedQA500Retrieval",
        "The 500 test questions of PubMedQA, each to the abstract that it is the title of, without the "
        "conclusion. The corpus is the 1,000 labelled abstracts, or also PQA-A's 211,000 as in BMRetriever.",
        main_score="ndcg_at_20",
        reference=BMRETRIEVER,
        date=("2019-01-01", "2019-12-31"),
        task_subtypes=["Question Answering Retrieval"],
        license="mit",
        annotations_creators="derived",
        prompt={"query": "Given a question, retrieve Pubmed passages that answer the question"},
    )


class ICliniqRetrieval(BuiltTask, JudgedRetrieval):
    """Patients' questions on iCliniq to the doctors' answers."""

    sources = "iCliniq.json (github.com/Kent0n-Li/ChatDoctor)"
    metadata = _metadata(
        "ICliniqRetrieval",
        "Patients' questions on iCliniq, each to its doctor's answer.",
        main_score="ndcg_at_20",
        reference=BMRETRIEVER,
        date=("2023-01-01", "2023-03-24"),  # until ChatDoctor's paper; the answers themselves are undated
        task_subtypes=["Question Answering Retrieval"],
        annotations_creators="derived",
        prompt={
            "query": "Given a question with context from online medical forums, retrieve responses that best "
            "answer the question"
        },
    )


class DiseaseOntologyRetrieval(BuiltTask, JudgedRetrieval):
    """Names of diseases to definitions, in the place of MeSH."""

    sources = "an .obo file of the Disease Ontology (github.com/DiseaseOntology/HumanDiseaseOntology)"
    built_size = (3_281, 3_281)
    metadata = _metadata(
        "DiseaseOntologyRetrieval",
        "Names of diseases, each to its definition in the Disease Ontology. It replaces BMRetriever's MeSH "
        "set and differs from it, so scores are not comparable.",
        main_score="mrr_at_5",
        reference="https://disease-ontology.org",
        date=("2003-01-01", "2026-07-31"),  # from the start of the ontology to the release of `built_size`
        task_subtypes=[],  # mteb has none for definitions
        license="cc0-1.0",
        annotations_creators="expert-annotated",
        prompt={"query": "Given a concept, retrieve passages for its definition"},
    )


class RELISHReranking(BuiltTask, JudgedRetrieval):
    """Articles with candidates that authors graded."""

    sources = "the evaluation split of RELISH in SciRepEval (Hub: allenai/scirepeval, configuration relish)"
    metadata = _metadata(
        "RELISHReranking",
        "Articles, each with candidates graded 0, 1 or 2 by authors; MAP takes 1 and 2 as relevant.",
        type="Reranking",
        main_score="map_at_1000",
        reference=BMRETRIEVER,
        date=("2022-01-01", "2023-12-06"),  # and licence: of SciRepEval, as mteb's tasks on it state them
        license="odc-by",
        task_subtypes=["Scientific Reranking"],
        annotations_creators="expert-annotated",
        prompt={"query": "Given an article, retrieve Pubmed articles that are relevant to this article"},
    )


class DrugBankRetrieval(BuiltTask, JudgedRetrieval):
    """Names of drugs to descriptions, from a licensed copy."""

    sources = "your own licensed copy of DrugBank's XML (go.drugbank.com)"
    source_needs = "credentials"
    metadata = _metadata(
        "DrugBankRetrieval",
        "Names of drugs, each to its description in DrugBank, from a user's own licensed copy.",
        main_score="mrr_at_5",
        reference=BMRETRIEVER,
        date=("2006-01-01", "2024-04-29"),  # from DrugBank's first release to BMRetriever's paper
        task_subtypes=[],  # mteb has none for definitions
        license="https://go.drugbank.com/legal/terms_of_use",
        annotations_creators="expert-annotated",
        is_public=False,
        prompt={"query": "Given a drug, retrieve passages for its definition"},
    )


class BIOSSESLocal(BuiltTask, BiossesSTS):
    """mteb's BIOSSES with a local copy as an option."""

    sources = "all.tsv (github.com/Markus-Zlabinger/ssts)"

    def load_without_copy(self, num_proc: int | None, **kwargs: Any) -> None:
        """Have mteb fetch the data.

        Raises:
            DataUnavailableError: mteb cannot fetch the data.
        """
        try:
            BiossesSTS.load_data(self, num_proc, **kwargs)
        except Exception as error:  # offline, blocked, withdrawn: the Hub client has a dozen types for it
            raise self.unavailable(error) from error


RELATIVES: tuple[type[AbsTask], ...] = (
    MedQuADLiveQARetrieval,
    BioASQ500SnippetsRetrieval,
    PubMedQA500Retrieval,
    ICliniqRetrieval,
    DiseaseOntologyRetrieval,
    RELISHReranking,
    DrugBankRetrieval,
)
REPLACED_BIOSSES: Mapping[type[AbsTask], type[AbsTask]] = {BiossesSTS: BIOSSESLocal}
#: The eleven sets of the paper; the first four give its average of four, the first five its average of five.
BMRETRIEVER_SETS = (
    "NFCorpus",
    "SciFact",
    "SCIDOCS",
    "TRECCOVID",
    "BIOSSES",
    "BioASQ500SnippetsRetrieval",
    "PubMedQA500Retrieval",
    "ICliniqRetrieval",
    "DrugBankRetrieval",
    "DiseaseOntologyRetrieval",
    "RELISHReranking",
)
