"""MedTEBReranking: order given candidates by how well they answer a Chinese medical question."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mteb.abstasks.task_metadata import TaskMetadata

from medteb_mteb.abstasks.judged import JudgedRetrieval
from medteb_mteb.editions import EditionError
from medteb_mteb.tasks._edition_task import CITATION, NO_REVISION, REFERENCE, EditionTask

if TYPE_CHECKING:
    from mteb.timing import TimingStack

INSTRUCTION = (
    "Based on a Chinese medical question, evaluate and rank the medical information that provide answers to "
    "the question."
)

# The deepest cut mteb computes. Over lists no longer than this it is MAP over the whole list.
MAX_CANDIDATES = 1000


class MedTEBReranking(EditionTask, JudgedRetrieval):
    """Chinese medical reranking, MAP over the whole candidate list (MedTEB, section on reranking)."""

    metadata = TaskMetadata(
        name="MedTEBReranking",
        description=(
            "Chinese medical questions with a list of candidate documents each; the task is to put those "
            "that answer the question first. MAP is taken over the whole list."
        ),
        dataset={"path": "medteb/MedTEBReranking", "revision": NO_REVISION},
        type="Reranking",
        category="t2t",
        modalities=["text"],
        reference=REFERENCE,
        eval_splits=["test"],
        eval_langs=["cmn-Hans"],
        main_score=f"map_at_{MAX_CANDIDATES}",
        domains=["Medical", "Written"],
        task_subtypes=["Question answering"],
        dialect=[],
        prompt={"query": INSTRUCTION},
        bibtex_citation=CITATION,
    )

    def load_data(
        self, num_proc: int | None = None, *, timer: TimingStack | None = None, **kwargs: Any
    ) -> None:
        """Read the edition and check that the main score covers every list.

        Raises:
            EditionError: If the edition cannot be read, or a candidate list is too long.
            FolderError: If the data has problems, or no candidate lists.
        """
        if self.data_loaded:
            return
        super().load_data(num_proc, timer=timer, **kwargs)
        for split in self.dataset["default"].values():
            # Without lists the folder would be one of retrieval, and refused above.
            longest = max(map(len, (split["top_ranked"] or {}).values()), default=0)
            if longest > MAX_CANDIDATES:
                self.unload_data()
                raise EditionError(
                    f"{self.metadata.name} needs candidate lists of at most {MAX_CANDIDATES} documents in "
                    f"top_ranked.jsonl, found a list of {longest}."
                )
