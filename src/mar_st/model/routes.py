"""Routes of a model: the modules that its queries or documents go through, and their prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import nn

    from mar_st.recipes.schema import Side

#: Prompts for documents, in the order in which sentence-transformers looks for one.
DOCUMENT_PROMPTS = ("document", "passage", "corpus")


def route(model: SentenceTransformer, task: Side) -> list[nn.Module]:
    """Return the modules that a text of a task goes through, in order."""
    from sentence_transformers.base.modules import Router  # lazy: sentence_transformers

    modules: list[nn.Module] = []
    for module in model.children():
        if isinstance(module, Router):
            router: Any = module
            modules.extend(router.sub_modules[router._resolve_route(task=task)])
        else:
            modules.append(module)
    return modules
