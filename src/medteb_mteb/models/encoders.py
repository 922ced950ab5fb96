"""MAR, MedTE and BMRetriever as mteb encoders."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from mteb.models import SentenceTransformerEncoderWrapper
from mteb.models.abs_encoder import AbsEncoder
from mteb.similarity_functions import cos_sim, dot_score, pairwise_cos_sim, pairwise_dot_score
from mteb.types import PromptType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.types import Array, BatchedInput
    from numpy.typing import NDArray
    from torch.utils.data import DataLoader

    from mar_st import MAR

__all__ = ["MAREncoder", "PaperBMRetriever", "load_medte"]

#: Texts that are sorted by length together; progress is shown after each such portion.
_WINDOW = 2048
#: Tokens of a text, with the end-of-sequence token, in the papers of MedTE and BMRetriever.
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

            engine = Engine(self.model, role, prompt=prompt, rows=kwargs.get("batch_size"), packed=False)
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


class PaperBMRetriever(AbsEncoder):
    r"""BMRetriever as its authors score it: dot product of last-token vectors, cosine for STS.

    A text is truncated to 511 tokens and ends in the end-of-sequence token, whose vector of the last layer is
    used, in float32. Prompts are those of the released code: the task's sentence, newline, `Query: `. mteb's
    entries score by cosine, and use as many tokens as the backbone allows.

    Args:
        model_name: Hub name or folder.
        revision: Revision on the Hub; None for a folder.
        device: Torch device; default the best one available.
        hub: Hub name of a model that has another name here.
    """

    def __init__(
        self,
        model_name: str,
        revision: str | None = None,
        *,
        device: str | None = None,
        hub: str | None = None,
    ) -> None:
        import torch  # lazy: torch
        from transformers import AutoModel, AutoTokenizer  # lazy: transformers

        source = hub or model_name
        pinned: dict[str, Any] = {} if Path(source).is_dir() else {"revision": revision}
        self.device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self.tokenizer: Any = AutoTokenizer.from_pretrained(source, **pinned)
        auto: Any = AutoModel
        self.model = auto.from_pretrained(source, dtype=torch.float32, **pinned).eval().to(self.device)
        self.prompts_dict = {"BIOSSES": "Given a sentence, retrieve sentences with the same meaning"}
        self._cosine = False

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
        """Return the vectors of the texts, not normalised, float32 (number of texts, dimensions)."""
        del hf_split, hf_subset
        self._cosine = task_metadata.type == "STS"
        prompt = "Represent this passage\npassage: "
        if prompt_type != PromptType.document:
            prompt = f"{self.get_instruction(task_metadata, prompt_type)}\nQuery: "
        texts = [prompt + text for batch in inputs for text in batch["text"]]
        return self._vectors(texts, int(kwargs.get("batch_size", 32)))

    def _vectors(self, texts: Sequence[str], batch_size: int) -> NDArray[np.float32]:
        import torch  # lazy: torch

        end = self.tokenizer.eos_token_id
        tokens = [ids[: MAX_TOKENS - 1] for ids in self.tokenizer(list(texts))["input_ids"]]
        tokens = [[*(ids[:-1] if ids and ids[-1] == end else ids), end] for ids in tokens]
        vectors: NDArray[np.float32] = np.zeros((len(texts), self.model.config.hidden_size), dtype=np.float32)
        order = sorted(range(len(texts)), key=lambda place: -len(tokens[place]))
        for start in range(0, len(order), batch_size):
            places = order[start : start + batch_size]
            lengths = torch.tensor([len(tokens[place]) for place in places])
            width = int(lengths.max())
            # Padded on the right: a causal model does not see what follows the last token.
            ids = torch.tensor([tokens[place] + [end] * (width - len(tokens[place])) for place in places])
            mask = (torch.arange(width)[None, :] < lengths[:, None]).long()
            with torch.inference_mode():
                states = self.model(
                    input_ids=ids.to(self.device), attention_mask=mask.to(self.device)
                ).last_hidden_state
            vectors[places] = states[torch.arange(len(places)), lengths - 1].float().cpu().numpy()
        return vectors

    def similarity(self, embeddings1: Array, embeddings2: Array) -> Array:
        """Dot product of all pairs; after texts of an STS task, cosine."""
        return (cos_sim if self._cosine else dot_score)(embeddings1, embeddings2)

    def similarity_pairwise(self, embeddings1: Array, embeddings2: Array) -> Array:
        """Dot product of corresponding rows; after texts of an STS task, cosine."""
        return (pairwise_cos_sim if self._cosine else pairwise_dot_score)(embeddings1, embeddings2)


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
