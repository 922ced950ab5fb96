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
            self._model = load_cross_encoder(given) if isinstance(given, str | Path) else given
        return self._model


def load_cross_encoder(source: str | Path, *, what: str = "reranker", **options: Any) -> CrossEncoder:
    """Load a cross-encoder; a tokenizer without a padding token gets one.

    Args:
        source: Folder or Hub name.
        what: Purpose of the model, for the message.
        **options: As for `CrossEncoder`. With `num_labels`, the model may be an encoder: it gets a new head.

    Raises:
        MarError: The model does not exist, is not a cross-encoder, or has missing or damaged files.
    """
    from sentence_transformers import CrossEncoder  # lazy: sentence_transformers

    from mar_st.model.encoders import check_source  # lazy: torch
    from mar_st.model.loading import check_weights, loading_of  # lazy: torch
    from mar_st.model.tokenizers import check_tokenizer  # lazy: transformers

    check_source(str(source), what=what)
    path = model_source(source)
    with loading_of(path):
        model: CrossEncoder = CrossEncoder(path, **options)
    check_weights(model, path, head="num_labels" not in options)
    tokenizer: Any = model.tokenizer
    check_tokenizer(tokenizer, path)
    transformer: Any = model[0]
    if transformer.model.config.pad_token_id is None:  # heads of decoders read the last token before padding
        transformer.model.config.pad_token_id = tokenizer.pad_token_id
    return model
