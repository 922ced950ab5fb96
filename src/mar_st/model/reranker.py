"""Scoring of pairs by a cross-encoder."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from mar_st.errors import MarError
from mar_st.model.names import model_source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sentence_transformers import CrossEncoder

RerankerSource: TypeAlias = "str | Path | CrossEncoder"


class Reranker:
    """A cross-encoder, loaded on first use; safe to call from several threads.

    Args:
        model: A cross-encoder, a folder or a Hub name.
        batch_size: Pairs per forward pass.
    """

    def __init__(self, model: RerankerSource, *, batch_size: int = 32) -> None:
        self.name = str(model) if isinstance(model, str | Path) else "cross-encoder"
        self.batch_size = batch_size
        self._given = model
        self._model: Any = None
        self._lock = threading.Lock()

    def score(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """Return the scores of (query, document) pairs, `(len(pairs),)` float32.

        Raises:
            MarError: The model does not exist, or it gives several scores per pair.
        """
        if not pairs:
            return np.empty(0, dtype=np.float32)
        with self._lock:
            scores = np.asarray(
                self.open().predict(list(pairs), batch_size=self.batch_size, show_progress_bar=False),
                dtype=np.float32,
            )
        if scores.shape != (len(pairs),):
            raise MarError(f"{self.name} gives scores of shape {scores.shape[1:]} per pair; one is needed.")
        return scores

    def open(self) -> Any:
        """Return the model, loaded if it was not.

        Raises:
            MarError: The model does not exist, or it is not a cross-encoder.
        """
        if self._model is None:
            given: Any = self._given
            if isinstance(given, str | Path):
                from sentence_transformers import CrossEncoder  # lazy: sentence_transformers

                from mar_st.model.encoders import check_source  # lazy: torch

                check_source(str(given), what="reranker")
                try:
                    given = CrossEncoder(model_source(given))
                except ValueError as error:  # no configuration of a transformers model
                    raise MarError(
                        f"{self.name} is not a cross-encoder ({' '.join(str(error).split())[:200]}). Give "
                        "the folder or Hub name of one."
                    ) from error
            self._model = given
        return self._model
