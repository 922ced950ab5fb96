"""MedTEBRetrieval: find the documents that answer a Chinese medical question."""

from __future__ import annotations

from mteb.abstasks.task_metadata import TaskMetadata

from medteb_mteb.abstasks.judged import JudgedRetrieval
from medteb_mteb.tasks._edition_task import CITATION, NO_REVISION, REFERENCE, EditionTask

INSTRUCTION = "Given a Chinese medical question, retrieve medical documents that answer the question."


class MedTEBRetrieval(EditionTask, JudgedRetrieval):
    """Chinese medical retrieval, nDCG@10 (MedTEB, section on retrieval)."""

    metadata = TaskMetadata(
        name="MedTEBRetrieval",
        description=(
            "Chinese medical questions as patients type them against a corpus of medical text; a document "
            "counts when it is about the same subject and intent and answers the question, fully or in part."
        ),
        dataset={"path": "medteb/MedTEBRetrieval", "revision": NO_REVISION},
        type="Retrieval",
        category="t2t",
        modalities=["text"],
        reference=REFERENCE,
        eval_splits=["test"],
        eval_langs=["cmn-Hans"],
        main_score="ndcg_at_10",
        domains=["Medical", "Written"],
        task_subtypes=["Question Answering Retrieval"],
        dialect=[],
        prompt={"query": INSTRUCTION},
        bibtex_citation=CITATION,
    )
