"""A sentence-transformers model as the teacher; its vectors are kept in a store."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize

from mar_st.encode.engine import Engine
from mar_st.model.digest import DOCUMENT_PROMPTS, modules_digest
from mar_st.model.opening import route

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from mar_st.model.mar import MAR
    from mar_st.recipes.schema import Side
    from mar_st.teachers.store import TeacherStore
    from mar_st.teachers.vectors import Vectors


@dataclass(frozen=True)
class RoleEncoding:
    """Settings by which a teacher encodes texts of a role.

    Attributes:
        task: The task by which a `Router` finds its route.
        prompt: Prompt before the text.
    """

    task: Side
    prompt: str = ""


class ModelTeacher:
    """A model that encodes texts when they are first requested.

    Args:
        model: The model, in evaluation mode.
        store: Teacher store that keeps its vectors.
        asks: How to encode queries and documents.
        autocast: Compute in bfloat16 where torch considers it safe.
        batch_size: Maximum texts per forward pass; fewer if they are long.
        show_progress: Show a bar while vectors are computed.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        store: TeacherStore,
        asks: Mapping[Side, RoleEncoding],
        *,
        autocast: bool = False,
        batch_size: int = 64,
        show_progress: bool = True,
    ) -> None:
        self.show_progress = show_progress
        self.model, self.store, self.asks = model, store, dict(asks)
        self.autocast, self.batch_size = autocast, batch_size
        self._digests: dict[Side, str] = {}

    @classmethod
    def of_documents(cls, mar: MAR, store: TeacherStore, *, normalised: bool = True, **options: Any) -> Self:
        """Return the document encoder of a MAR as a teacher, which encodes queries as documents (Stage I).

        Args:
            mar: The MAR.
            store: Teacher store that keeps its vectors.
            normalised: False: vectors before normalisation, with the dimensions that the route keeps.
            **options: Further arguments of the class.
        """
        document = RoleEncoding("document", mar.prompts.get("document") or "")
        model: SentenceTransformer = mar
        if not normalised:
            modules: list[Any] = [one for one in route(mar, "document") if not isinstance(one, Normalize)]
            model = SentenceTransformer(modules=modules, device=str(mar.device)).eval()
        return cls(model, store, {"query": document, "document": document}, **options)

    @classmethod
    def of_model(cls, model: SentenceTransformer, store: TeacherStore, **options: Any) -> Self:
        """Return any model as a teacher, which encodes as its `encode_query` and `encode_document` do."""
        document_prompts = (model.prompts[name] for name in DOCUMENT_PROMPTS if name in model.prompts)
        asks: dict[Side, RoleEncoding] = {
            "query": RoleEncoding("query", model.prompts.get("query") or ""),
            "document": RoleEncoding("document", next(document_prompts, "") or ""),
        }
        return cls(model, store, asks, **options)

    def with_query_prompt(self, prompt: str) -> Self:
        """Return the same teacher with another query prompt; its weights are digested once."""
        teacher = copy.copy(self)
        teacher.asks = {**self.asks, "query": replace(self.asks["query"], prompt=prompt)}
        return teacher

    def identity(self, role: Side) -> dict[str, Any]:
        """Return the digest of the modules that encode this role, and the settings of the vectors."""
        ask = self.asks[role]
        if ask.task not in self._digests:
            self._digests[ask.task] = modules_digest(route(self.model, ask.task))
        return {
            "kind": "model",
            "modules": self._digests[ask.task],
            "prompt": ask.prompt,
            "autocast": self.autocast,
        }

    def encode(self, texts: Sequence[str], role: Side) -> np.ndarray:
        """Return vectors of texts, `(len(texts), dim)` float32."""
        ask = self.asks[role]
        engine = Engine(
            self.model,
            ask.task,
            prompt=ask.prompt,
            rows=self.batch_size,
            packed=False,
            autocast=self.autocast,
        )
        return engine.encode(texts)

    def vectors(self, texts: Sequence[str], role: Side) -> Vectors:
        """Return vectors of texts from the store; missing ones are computed."""
        return self.store.vectors(self, texts, role, show_progress=self.show_progress)
