"""Vectors of a set's texts, with the prompts that mteb would choose for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from mar_st.evaluation.scored_set import TaskError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sentence_transformers import SentenceTransformer

    from mar_st.evaluation.scored_set import Task, TaskType

#: mteb's names of the types; prompts are named after them.
_MTEB_TYPES: dict[TaskType, str] = {"retrieval": "Retrieval", "rerank": "Reranking", "sts": "STS"}
#: Number of texts from which encoding shows a progress bar.
_PROGRESS_TEXTS = 2000


def encode_texts(
    model: SentenceTransformer,
    texts: Sequence[str],
    task: Task,
    kind: TaskType,
    role: Literal["query", "document"] | None,
    *,
    batch_size: int,
) -> Any:
    """Return the vectors of texts, a float32 tensor `(texts, dim)`.

    The stored prompt is the first of `TYPE-ROLE`, `TYPE` and `ROLE`, such as `Retrieval-query`, `Retrieval`
    and `query`. If there is none of these, a model with routes gets no prompt, and any other model the one
    that sentence-transformers chooses.

    Args:
        model: Any sentence-transformers model; texts without a role take its query route if it has routes.
        texts: Queries, documents, or one side of text pairs.
        task: Settings of the set; its `prompt` replaces that of texts that are not documents.
        kind: Type of the set.
        role: None for text pairs.
        batch_size: Texts encoded at a time.

    Raises:
        TaskError: The task asks for a prompt that the model does not have.
    """
    from sentence_transformers.base.modules import Router  # lazy: sentence_transformers

    options: dict[str, Any] = {
        "batch_size": batch_size,
        "convert_to_tensor": True,
        "show_progress_bar": len(texts) >= _PROGRESS_TEXTS,
    }
    has_routes = any(isinstance(module, Router) for module in model.children())
    prompt = _stored_prompt(model, task, kind, role)
    if prompt is None and has_routes:
        prompt = ""
    if prompt is not None:
        options["prompt"] = prompt
    encode: Any = model.encode
    if role == "document":
        encode = model.encode_document
    elif role == "query" or has_routes:
        encode = model.encode_query
    return encode(list(texts), **options).float()


def _stored_prompt(
    model: SentenceTransformer, task: Task, kind: TaskType, role: Literal["query", "document"] | None
) -> str | None:
    if task.prompt is not None and role != "document":
        if task.prompt not in model.prompts:
            raise TaskError(
                f"task {task.name} asks for the prompt {task.prompt!r}; the model has "
                f"{', '.join(model.prompts) or 'none'}."
            )
        return str(model.prompts[task.prompt])
    name = _MTEB_TYPES[kind]
    names = (name,) if role is None else (f"{name}-{role}", name, role)
    return next((str(model.prompts[name]) for name in names if name in model.prompts), None)
