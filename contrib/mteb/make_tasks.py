"""Writes the task files as they would stand in mteb, from this package's tables."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from templates import built, cmirb, nano, relish

from medteb_mteb.tasks import relatives

if TYPE_CHECKING:
    from collections.abc import Callable

#: Folder whose content stands in `mteb/tasks/` of a checkout.
TARGET = Path(__file__).with_name("tasks")
FILES: dict[str, Callable[[], str]] = {
    "retrieval/zho/cmirb_retrieval.py": cmirb.content,
    "retrieval/zho/nano_cmteb_retrieval.py": partial(nano.content, "NanoCMTEB", "Retrieval"),
    "retrieval/multilingual/nano_medical_retrieval.py": partial(nano.content, "NanoMedical", "Retrieval"),
    "reranking/zho/nano_cmteb_reranking.py": partial(nano.content, "NanoCMTEB", "Reranking"),
    "reranking/multilingual/nano_medical_reranking.py": partial(nano.content, "NanoMedical", "Reranking"),
    "reranking/eng/relish_reranking.py": relish.content,
    "retrieval/eng/bio_asq_500_snippets_retrieval.py": partial(
        built.content, relatives.BioASQ500SnippetsRetrieval
    ),
    "retrieval/eng/disease_ontology_retrieval.py": partial(built.content, relatives.DiseaseOntologyRetrieval),
    "retrieval/eng/med_quad_live_qa_retrieval.py": partial(built.content, relatives.MedQuADLiveQARetrieval),
    "retrieval/eng/pub_med_qa_500_retrieval.py": partial(built.content, relatives.PubMedQA500Retrieval),
}

if __name__ == "__main__":
    for name, content in FILES.items():
        path = TARGET / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content(), encoding="utf-8")
