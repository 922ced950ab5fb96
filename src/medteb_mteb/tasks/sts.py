"""MedTEBSTS: tell whether a question keeps its meaning when a medical term is replaced by a synonym."""

from __future__ import annotations

from mteb.abstasks.sts import AbsTaskSTS
from mteb.abstasks.task_metadata import TaskMetadata

from medteb_mteb.tasks._edition_task import CITATION, NO_REVISION, REFERENCE, EditionTask

INSTRUCTION = "Retrieve semantically similar text."


class MedTEBSTS(EditionTask, AbsTaskSTS):
    """Chinese medical synonym STS, Pearson of the cosine (MedTEB, section on synonym STS)."""

    min_score = 0
    max_score = 1

    metadata = TaskMetadata(
        name="MedTEBSTS",
        description=(
            "Pairs of Chinese medical questions. Label 1: a term was replaced by a synonym and the intent "
            "kept; label 0: the intent was changed, with the synonym (hard) or with the original term (easy)."
        ),
        dataset={"path": "medteb/MedTEBSTS", "revision": NO_REVISION},
        type="STS",
        category="t2t",
        modalities=["text"],
        reference=REFERENCE,
        eval_splits=["test"],
        eval_langs=["cmn-Hans"],
        main_score="cosine_pearson",
        domains=["Medical", "Written"],
        task_subtypes=[],
        dialect=[],
        prompt=INSTRUCTION,
        bibtex_citation=CITATION,
    )
