"""Sentence-transformers models as mteb encoders: MAR with its routes, any other as mteb wraps it."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from mteb.models import SentenceTransformerEncoderWrapper
from mteb.types import PromptType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.types import Array, BatchedInput
    from torch.utils.data import DataLoader

    from mar_st import MAR

__all__ = ["STS_ROUTE", "FolderEncoder", "MAREncoder", "StsRoute"]

StsRoute = Literal["query-query", "query-document"]
# Texts of an STS pair have no roles. The route that does better on the train split is the default.
STS_ROUTE: StsRoute = "query-query"

#: Texts that are sorted by length together; progress is shown after each such portion.
_WINDOW = 2048


class FolderEncoder(SentenceTransformerEncoderWrapper):
    """mteb's wrapper, with vectors of a lower `precision` in a form that mteb can score."""

    def encode(self, inputs: DataLoader[BatchedInput], **kwargs: Any) -> Array:
        """Encode all texts of a data loader; see `scorable` for `precision`."""
        return scorable(super().encode(inputs, **kwargs), kwargs.get("precision"))


class MAREncoder(SentenceTransformerEncoderWrapper):
    """A MAR as an mteb encoder: texts with a role take its route, texts without one the query route.

    The prompt is the stored one for the task's type. In STS neither text has a role: ``query-query`` encodes
    both as queries, ``query-document`` the second one as a document and without a prompt. mteb does not tell
    an encoder which of the two texts it is given, but encodes all first texts and then all second texts. The
    route relies on that order, so it cannot be used with mteb's embedding cache.
    """

    model: MAR

    def __init__(self, model: MAR, *, sts_route: StsRoute = STS_ROUTE) -> None:
        if sts_route not in get_args(StsRoute):
            raise ValueError(f"sts_route is one of {', '.join(get_args(StsRoute))}; got {sts_route!r}.")
        with warnings.catch_warnings():
            # mteb's own calls, which users cannot change
            warnings.filterwarnings("ignore", "The fill_missing parameter", DeprecationWarning)
            warnings.filterwarnings("ignore", "The `get_sentence_embedding_dimension`", FutureWarning)
            super().__init__(model)
        self.sts_route = sts_route
        self._first_texts: tuple[str, str, str, int] | None = None

    def encode(
        self,
        inputs: DataLoader[BatchedInput],
        *,
        task_metadata: TaskMetadata,
        hf_split: str,
        hf_subset: str,
        prompt_type: PromptType | None = None,
        **kwargs: Any,
    ) -> Array:
        """Encode all texts of a data loader.

        Returns:
            float32 array (number of texts, dimensions); with a `precision`, quantised to it.
        """
        texts = [text for batch in inputs for text in _texts(batch, prompt_type)]
        key = (task_metadata.name, hf_split, hf_subset, len(texts))
        second = task_metadata.type == "STS" and prompt_type is None and self._first_texts == key
        as_document = prompt_type is PromptType.document or (second and self.sts_route == "query-document")
        self._first_texts = None  # also when encoding fails: a new evaluation starts with first texts
        name = None if second and as_document else self.get_prompt_name(task_metadata, prompt_type)
        # "" instead of None, which would mean the default prompt of queries.
        prompt = (self.model_prompts or {}).get(name or "") or ""
        vectors = self._vectors(texts, "document" if as_document else "query", prompt, kwargs)
        if task_metadata.type == "STS" and prompt_type is None and not second:
            self._first_texts = key
        return vectors

    def _vectors(
        self, texts: Sequence[str], role: Literal["query", "document"], prompt: str, options: dict[str, Any]
    ) -> Array:
        """Return vectors of the offline encoder, which sorts by length, or of the model for other options."""
        precision = options.get("precision")
        if options.keys() <= {"batch_size", "show_progress_bar", "precision"}:
            from mar_st.encode.engine import Engine  # lazy: torch

            engine = Engine(self.model, role, prompt=prompt, rows=options.get("batch_size"), packed=False)
            shown = bool(options.get("show_progress_bar", False))
            vectors: Any = engine.encode(texts, window=_WINDOW, show_progress=shown)
            if precision is not None:
                from sentence_transformers.util import quantize_embeddings  # lazy: sentence_transformers

                vectors = quantize_embeddings(vectors, precision)  # what the model's own `encode` does
        else:
            vectors = self.model.encode(texts, task=role, prompt=prompt, **options)
        return scorable(vectors, precision)


def _texts(batch: Mapping[str, Any], prompt_type: PromptType | None) -> Sequence[str]:
    """Return a batch's texts; documents as title, newline, body, the published form (mteb uses a space)."""
    if prompt_type is PromptType.document and "title" in batch and "body" in batch:
        pairs = zip(batch["title"], batch["body"], strict=True)
        return [f"{title}\n{body}" if title else body for title, body in pairs]
    texts: Sequence[str] = batch["text"]
    return texts


def scorable(vectors: Array, precision: str | None) -> Array:
    """Return quantised vectors as float32 with the same values; each packed bit becomes -1 or 1.

    mteb scores vectors without conversion: integers have no norm in torch, and bytes of packed bits are not
    vectors. Cosines of -1 and 1 rank like the Hamming distance.

    Args:
        vectors: Result of `SentenceTransformer.encode(precision=...)`, (number of texts, width).
        precision: The requested precision; None or `float32` leave the vectors as they are.
    """
    if precision in (None, "float32"):
        return vectors
    array = np.asarray(vectors)
    if precision in ("binary", "ubinary"):
        # "binary" are the same bytes as "ubinary", less 128 (sentence_transformers.util.quantization).
        packed = (array.astype(np.int16) + 128).astype(np.uint8) if precision == "binary" else array
        return np.unpackbits(packed, axis=-1).astype(np.float32) * 2 - 1
    return array.astype(np.float32)
