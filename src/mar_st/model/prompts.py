"""Stored prompts: their names, those of the MAR paper, and those that encoders were saved with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from mar_st.model.saved_modules import saved_modules

if TYPE_CHECKING:
    from mar_st.model.encoders import EncoderSource

Task: TypeAlias = Literal["retrieval", "rerank", "sts"]

#: Name of the stored prompt for the query side of each task. The names are the ones mteb looks up:
#: prompt type, task type and prompt type, task type.
PROMPT_NAMES: dict[Task, str] = {"retrieval": "query", "rerank": "Reranking-query", "sts": "STS"}

#: The instructions of the MAR paper (Table 8) in the format of its released code.
PUBLISHED_PROMPTS = {
    name: f"<instruct>{instruction}\n<query>"
    for name, instruction in {
        "query": "Given a Chinese medical question, retrieve medical documents that answer the question.",
        "Reranking-query": (
            "Based on a Chinese medical question, evaluate and rank the medical information that provide "
            "answers to the question."
        ),
        "STS": "Retrieve semantically similar text.",
    }.items()
}


def source_prompts(query: EncoderSource, document: EncoderSource) -> dict[str, str] | None:
    """Return the prompts that two encoders were saved with; `None` if neither has one."""
    saved_prompts = []
    for source in (document, query):
        saved = None if isinstance(source, tuple) else saved_modules(source)
        saved_prompts.append(saved.prompts if saved is not None else {})
    of_document, of_query = saved_prompts
    # Prompts of tasks are for queries: those of the query encoder, if it has any.
    task_prompts = {name: text for name, text in (of_query or of_document).items() if name != "document"}
    if not task_prompts and "document" not in of_document:
        return None
    return {**(task_prompts or PUBLISHED_PROMPTS), "document": of_document.get("document", "")}
