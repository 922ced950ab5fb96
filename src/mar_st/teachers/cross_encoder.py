"""A sentence-transformers cross-encoder as the teacher of scores; every pair is scored once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import nn

from mar_st.errors import MarError
from mar_st.model.digest import modules_digest

if TYPE_CHECKING:
    from collections.abc import Iterator

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
        self._digest = ""

    def identity(self, role: Side) -> dict[str, Any]:
        """Return the digest of the model, its prompt and the kind of score."""
        del role  # a pair has both
        if not self._digest:
            self._digest = modules_digest(list(self.model.children()))
        prompt = (self.model.prompts or {}).get(self.model.default_prompt_name or "")
        return {"kind": "cross-encoder", "modules": self._digest, "prompt": prompt or "", "score": "logit"}

    def encode(self, texts: Sequence[str], role: Side) -> np.ndarray:
        """Return scores of pairs as `pair_key` writes them, `(len(texts), 1)` float32."""
        del role
        pairs = [tuple(json.loads(text)) for text in texts]
        options: dict[str, Any] = {"activation_fn": nn.Identity(), "show_progress_bar": False}
        scores: np.ndarray = self.model.predict(pairs, batch_size=self.batch_size, **options)
        return scores.reshape(len(pairs), 1)

    def scores(self, pairs: Sequence[tuple[str, str]]) -> Vectors:
        """Return scores of (query, document) pairs, `(len(pairs), 1)`; missing ones are computed."""
        return self.store.vectors(self, _Keys(pairs), "document", show_progress=self.show_progress)


class _Keys(Sequence[str]):
    """The keys of pairs, written when asked for."""

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        self._pairs = pairs

    def __len__(self) -> int:
        return len(self._pairs)

    def __getitem__(self, index: Any) -> Any:
        return pair_key(*self._pairs[index])

    def __iter__(self) -> Iterator[str]:
        return (pair_key(query, document) for query, document in self._pairs)


def pair_key(query: str, document: str) -> str:
    """Return the text under which a pair is stored."""
    return json.dumps([query, document], ensure_ascii=False)
