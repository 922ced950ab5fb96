"""A sentence-transformers cross-encoder as the teacher of scores; every pair is scored once."""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any

from torch import nn

from mar_st.errors import MarError
from mar_st.model.digest import modules_digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np
    from sentence_transformers import CrossEncoder

    from mar_st.recipes.schema import Side
    from mar_st.teachers.store import TeacherStore
    from mar_st.teachers.vectors import Vectors


class CrossEncoderTeacher:
    """Scores of (query, document) pairs, kept in a store like vectors of width 1.

    A score is the logit, without the activation that the model applies when it ranks: a sigmoid would flatten
    the differences that a student should learn.

    Args:
        model: The cross-encoder.
        store: Teacher store that keeps its scores.
        batch_size: Pairs per forward pass.
        show_progress: Show a bar while scores are computed.

    Raises:
        MarError: The model gives several scores per pair.
    """

    def __init__(
        self, model: CrossEncoder, store: TeacherStore, *, batch_size: int = 64, show_progress: bool = True
    ) -> None:
        if model.num_labels != 1:
            raise MarError(
                f"The cross-encoder gives {model.num_labels} scores per pair; one is needed. Take a model "
                "for ranking."
            )
        self.model, self.store = model, store
        self.batch_size, self.show_progress = batch_size, show_progress

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
        scores: np.ndarray = self.model.predict(pairs, batch_size=self.batch_size, **options)
        return scores.reshape(len(pairs), 1)

    def scores(self, pairs: Iterable[tuple[str, str]]) -> Vectors:
        """Return scores of (query, document) pairs, `(len(pairs), 1)`; missing ones are computed."""
        keys = [json.dumps(list(pair), ensure_ascii=False) for pair in pairs]
        return self.store.vectors(self, keys, "document", show_progress=self.show_progress)
