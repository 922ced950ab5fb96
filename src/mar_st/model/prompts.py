"""Stored prompts: their names, those of the MAR paper, and those that encoders were saved with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from mar_st.errors import MarError
from mar_st.model.native_gte import fetch
from mar_st.modules.layout import saved_modules

if TYPE_CHECKING:
    from mar_st.model.encoders import EncoderSource
    from mar_st.recipes.schema import Recipe

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
    of_document, of_query = _prompts(document), _prompts(query)
    # Prompts of tasks are for queries: those of the query encoder, if it has any.
    task_prompts = {name: text for name, text in (of_query or of_document).items() if name != "document"}
    if not task_prompts and "document" not in of_document:
        return None
    return {**(task_prompts or PUBLISHED_PROMPTS), "document": of_document.get("document", "")}


def _prompts(source: EncoderSource, revision: str | None = None) -> dict[str, str]:
    saved = None if isinstance(source, tuple) else saved_modules(fetch(source, revision))
    return saved.prompts if saved is not None else {}


def with_source_prompts(recipe: Recipe) -> Recipe:
    """Return the recipe with the prompts that it uses but does not define, taken from its sources.

    A prompt for queries comes from the query encoder's source if that has one of this name, else from the
    document encoder's, to whose space queries are aligned. The prompt `document` comes from the document
    encoder's source, or that of the only encoder.

    Raises:
        MarError: A data entry names a prompt that neither the recipe nor a source defines.
    """
    used = {entry.prompt for entry in recipe.data if entry.prompt and entry.form != "texts"}
    missing = sorted({*used, "document"} - set(recipe.prompts))
    if not missing:
        return recipe
    saved_prompts = [
        _prompts(backbone.source, backbone.revision)
        for backbone in (recipe.query, recipe.document)
        if backbone is not None and backbone.source is not None
    ]
    prompts = dict(recipe.prompts)
    for name in missing:
        order = reversed(saved_prompts) if name == "document" else saved_prompts
        text = next((own[name] for own in order if name in own), None)
        if text is not None:
            prompts[name] = text
        elif name in used:
            raise MarError(
                f"data of {recipe.name} use the prompt {name!r}, which neither 'prompts' nor a source "
                "defines. Define it, or write prompt: '' in the data entry."
            )
    return recipe.model_copy(update={"prompts": prompts})
