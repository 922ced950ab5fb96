"""Models as teachers: vectors of a model and scores of a cross-encoder, kept in a store."""

from __future__ import annotations

import copy
import json
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize
from torch import nn

from mar_st.encode.engine import Engine, stored_prompt
from mar_st.errors import MarError
from mar_st.model.digest import modules_digest
from mar_st.modules.arrangement import route

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np
    from sentence_transformers import CrossEncoder

    from mar_st.encode.vectors import Vectors
    from mar_st.model.mar import MAR
    from mar_st.recipes.schema import Side
    from mar_st.teachers.store import TeacherStore


class ModelTeacher:
    """A model that encodes texts when they are first requested.

    Args:
        model: The model, in evaluation mode.
        store: Teacher store that keeps its vectors.
        prompts: Prompts before queries and before documents.
        routes: Route of a model with routes that encodes queries, and documents; default their own.
        autocast: Compute in bfloat16 where torch considers it safe.
        batch_size: Maximum texts per forward pass; fewer if they are long.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        store: TeacherStore,
        prompts: Mapping[Side, str],
        *,
        routes: Mapping[Side, Side] | None = None,
        autocast: bool = False,
        batch_size: int = 64,
    ) -> None:
        self.model, self.store, self.prompts = model, store, dict(prompts)
        self.routes: Mapping[Side, Side] = routes or {"query": "query", "document": "document"}
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
        prompt = mar.prompts.get("document") or ""
        model: SentenceTransformer = mar
        if not normalised:
            modules: list[Any] = [one for one in route(mar, "document") if not isinstance(one, Normalize)]
            model = SentenceTransformer(modules=modules, device=str(mar.device)).eval()
        routes: dict[Side, Side] = {"query": "document", "document": "document"}
        return cls(model, store, {"query": prompt, "document": prompt}, routes=routes, **options)

    @classmethod
    def of_model(cls, model: SentenceTransformer, store: TeacherStore, **options: Any) -> Self:
        """Return any model as a teacher, which encodes as its `encode_query` and `encode_document` do."""
        roles: tuple[Side, Side] = ("query", "document")
        return cls(model, store, {role: stored_prompt(model.prompts, role) for role in roles}, **options)

    def with_query_prompt(self, prompt: str) -> Self:
        """Return the same teacher with another query prompt; its weights are digested once."""
        teacher = copy.copy(self)
        teacher.prompts = {**self.prompts, "query": prompt}
        return teacher

    def identity(self, role: Side) -> dict[str, Any]:
        """Return the digest of the modules that encode this role, and the settings of the vectors."""
        encoder = self.routes[role]
        if encoder not in self._digests:
            self._digests[encoder] = modules_digest(route(self.model, encoder))
        return {
            "kind": "model",
            "modules": self._digests[encoder],
            "prompt": self.prompts[role],
            "autocast": self.autocast,
        }

    def encode(self, texts: Sequence[str], role: Side) -> np.ndarray:
        """Return vectors of texts, `(len(texts), dim)` float32."""
        options: dict[str, Any] = {"rows": self.batch_size, "autocast": self.autocast}
        return Engine(self.model, self.routes[role], prompt=self.prompts[role], **options).encode(texts)

    def vectors(self, texts: Sequence[str], role: Side) -> Vectors:
        """Return vectors of texts from the store; missing ones are computed."""
        return self.store.vectors(self, texts, role)


class CrossEncoderTeacher:
    """Scores of (query, document) pairs, kept in a store like vectors of width 1.

    A score is the logit, without the activation that the model applies when it ranks: a sigmoid would flatten
    the differences that a student should learn.

    Args:
        model: The cross-encoder.
        store: Teacher store that keeps its scores.

    Raises:
        MarError: The model gives several scores per pair.
    """

    def __init__(self, model: CrossEncoder, store: TeacherStore) -> None:
        if model.num_labels != 1:
            raise MarError(
                f"The cross-encoder gives {model.num_labels} scores per pair; one is needed. Take a model "
                "for ranking."
            )
        self.model, self.store = model, store

    @cached_property
    def _digest(self) -> str:
        return modules_digest(list(self.model.children()))

    def identity(self, role: Side) -> dict[str, Any]:
        """Return the digest of the model, its prompt and the kind of score."""
        del role  # a pair has both
        prompt = (self.model.prompts or {}).get(self.model.default_prompt_name or "")
        return {"kind": "cross-encoder", "modules": self._digest, "prompt": prompt or "", "score": "logit"}

    def encode(self, texts: Sequence[str], role: Side) -> np.ndarray:
        """Return scores of pairs, given as JSON, `(len(texts), 1)` float32."""
        del role
        pairs = [tuple(json.loads(text)) for text in texts]
        options: dict[str, Any] = {"activation_fn": nn.Identity(), "show_progress_bar": False}
        scores: np.ndarray = self.model.predict(pairs, batch_size=64, **options)
        return scores.reshape(len(pairs), 1)

    def scores(self, pairs: Iterable[tuple[str, str]]) -> Vectors:
        """Return scores of (query, document) pairs, `(len(pairs), 1)`; missing ones are computed."""
        keys = [json.dumps(list(pair), ensure_ascii=False) for pair in pairs]
        return self.store.vectors(self, keys, "document")
