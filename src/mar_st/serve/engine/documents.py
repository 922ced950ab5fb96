"""A document encoder, so that one endpoint serves both sides."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mar_st.model.names import model_source
from mar_st.model.opening import open_model
from mar_st.model.routes import route
from mar_st.model.space import space_of
from mar_st.online.protocol import find_prompt
from mar_st.serve.settings import ServeError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mar_st.index.base import Index
    from mar_st.online import QueryEncoder


class DocumentEncoder:
    """The document side of a sentence-transformers model, in the form of a `QueryEncoder`.

    Args:
        model: The model, in evaluation mode.
        identity: Name of the source that the model was loaded from.
        space: Digest of the document space, if known.
    """

    def __init__(self, model: Any, identity: str, space: str | None = None) -> None:
        from sentence_transformers.base.modules import Normalize  # lazy: sentence_transformers

        self.model, self.identity = model, identity
        self.space = space
        modules = route(model, "document")
        transformer: Any = modules[0]
        self._tokenizer: Any = transformer.tokenizer
        self.dim = int(model.get_embedding_dimension())
        self.normalised = isinstance(modules[-1], Normalize) and model.truncate_dim is None
        self.max_length = int(transformer.max_seq_length or 512)
        self.truncation: str | None = getattr(self._tokenizer, "truncation_side", None)
        self.prompts: Mapping[str, str] = {name: text or "" for name, text in model.prompts.items()}
        self._lock = threading.Lock()

    def encode(self, texts: Sequence[str], prompt_name: str | None = None) -> np.ndarray:
        """Return the vectors of documents, float32 `(len(texts), dim)`; see `QueryEncoder`."""
        self._prompt(prompt_name)
        if not texts:
            return np.empty((0, self.dim), dtype=np.float32)
        with self._lock:
            vectors = self.model.encode_document(
                list(texts), prompt_name=prompt_name, show_progress_bar=False
            )
        return np.ascontiguousarray(vectors, dtype=np.float32)

    def count_tokens(self, texts: Sequence[str], prompt_name: str | None = None) -> list[int]:
        """Return the number of tokens of each text, with its prompt and special tokens."""
        prompt = self._prompt(prompt_name)
        if not texts:
            return []
        with self._lock:
            encoded = self._tokenizer([prompt + text for text in texts], verbose=False)
        return [len(ids) for ids in encoded["input_ids"]]

    def _prompt(self, name: str | None) -> str:
        """Return the prompt of a name, which must exist; by default the prompt of documents."""
        return self.prompts.get("document", "") if name is None else find_prompt(self.prompts, name)


def load_document_encoder(source: str) -> DocumentEncoder:
    """Load the document side of a MAR, or any sentence-transformers model.

    Args:
        source: Folder, Hub name or `mar-mini`.

    Raises:
        MarError: The model does not exist, or it has no document side.
    """
    path = model_source(source)
    model = open_model(path, routes="document")
    return DocumentEncoder(model, path, space_of(path) if Path(path).is_dir() else None)


def check_space(documents: QueryEncoder, index: Index) -> None:
    """Check that documents are encoded into the space of an index.

    Raises:
        ServeError: Their document spaces are known and differ.
    """
    if documents.space and index.space and documents.space != index.space:
        raise ServeError(
            f"The document encoder belongs to another document space ({documents.space[:12]}) than the "
            f"vectors of {index.name} ({index.space[:12]}). Give --document-encoder the model that encoded "
            "them."
        )
    if documents.dim < index.dim:
        raise ServeError(
            f"The document encoder gives {documents.dim} dimensions, the index {index.name} has {index.dim}. "
            "Give --document-encoder the model that encoded its documents."
        )
