"""MAR and MedTE as mteb encoders."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mteb.models import SentenceTransformerEncoderWrapper
from mteb.types import PromptType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.types import Array, BatchedInput
    from torch.utils.data import DataLoader

    from mar_st import MAR

#: Texts that are sorted by length together; progress is shown after each such portion.
_WINDOW = 2048
#: Tokens of a text in the paper of MedTE.
MAX_TOKENS = 512


class MAREncoder(SentenceTransformerEncoderWrapper):
    """A MAR as an mteb encoder: texts with a role take its route, texts without one the query route.

    The prompt is the stored one for the task's type. Both texts of an STS pair are queries.
    """

    model: MAR

    def __init__(self, model: MAR) -> None:
        with warnings.catch_warnings():
            # mteb's own calls, which users cannot change
            warnings.filterwarnings("ignore", "The fill_missing parameter", DeprecationWarning)
            warnings.filterwarnings("ignore", "The `get_sentence_embedding_dimension`", FutureWarning)
            super().__init__(model)

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
        """Return the vectors of all texts of a data loader, float32 (number of texts, dimensions)."""
        del hf_split, hf_subset
        texts = [text for batch in inputs for text in _texts(batch, prompt_type)]
        name = self.get_prompt_name(task_metadata, prompt_type)
        # "" instead of None, which would mean the default prompt of queries.
        prompt = (self.model_prompts or {}).get(name or "") or ""
        role: Literal["query", "document"] = "document" if prompt_type is PromptType.document else "query"
        if kwargs.keys() <= {"batch_size", "show_progress_bar"}:
            from mar_st.encode.engine import Engine  # lazy: torch

            engine = Engine(self.model, role, prompt=prompt, rows=kwargs.get("batch_size"))
            shown = bool(kwargs.get("show_progress_bar", False))
            return engine.encode(texts, window=_WINDOW, show_progress=shown)
        vectors: Array = self.model.encode(texts, task=role, prompt=prompt, **kwargs)
        return vectors


def _texts(batch: Mapping[str, Any], prompt_type: PromptType | None) -> Sequence[str]:
    """Return a batch's texts; documents as title, newline, body, the published form (mteb uses a space)."""
    if prompt_type is PromptType.document and "title" in batch and "body" in batch:
        pairs = zip(batch["title"], batch["body"], strict=True)
        return [f"{title}\n{body}" if title else body for title, body in pairs]
    texts: Sequence[str] = batch["text"]
    return texts


def load_medte(
    name: str, revision: str | None = None, *, device: str | None = None, **kwargs: Any
) -> SentenceTransformerEncoderWrapper:
    """Load MedTE, or a folder of its kind: mean pooling, normalised vectors, lower-cased text, 512 tokens.

    The pooling is set here because the published folder may not state it.

    Args:
        name: Hub name or folder.
        revision: Revision on the Hub.
        device: Torch device; default the best one available.
        **kwargs: Arguments of `SentenceTransformer`.
    """
    from sentence_transformers import SentenceTransformer  # lazy: sentence_transformers
    from sentence_transformers.sentence_transformer import modules  # lazy: sentence_transformers

    pinned = {} if revision is None or Path(name).is_dir() else {"revision": revision}
    transformer = modules.Transformer(
        name,
        max_seq_length=MAX_TOKENS,
        do_lower_case=True,
        model_kwargs=dict(pinned),
        config_kwargs=dict(pinned),
        processor_kwargs=dict(pinned),
    )
    pooling = modules.Pooling(transformer.get_embedding_dimension(), pooling_mode="mean")
    parts = [transformer, pooling, modules.Normalize()]
    return SentenceTransformerEncoderWrapper(SentenceTransformer(modules=parts, device=device, **kwargs))
