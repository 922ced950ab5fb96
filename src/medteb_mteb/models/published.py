"""MedTE, which mteb does not know, and BMRetriever, scored as its paper does.

Weights come from the Hub under their authors' names. The variants of BMRetriever have names of this package,
because mteb's entries do not score by dot product.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from mteb.models import ModelMeta, SentenceTransformerEncoderWrapper
from mteb.models.abs_encoder import AbsEncoder
from mteb.models.model_implementations.bmretriever_models import (
    BMRETRIEVER_CITATION,
    BMRetriever_1B,
    BMRetriever_2B,
    BMRetriever_7B,
    BMRetriever_410M,
)
from mteb.similarity_functions import cos_sim, dot_score, pairwise_cos_sim, pairwise_dot_score
from mteb.types import PromptType

from medteb_mteb.english.table import english_tasks
from medteb_mteb.tasks.english import CITATION as MEDTE_CITATION
from medteb_mteb.tasks.english import REFERENCE as MEDTE_PAPER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.types import Array, BatchedInput
    from numpy.typing import NDArray
    from torch.utils.data import DataLoader

__all__ = ["BMRETRIEVER_DOT", "MEDTE", "PaperBMRetriever", "load_medte", "paper_prompt"]

MEDTE_HUB = "MohammadKhodadad/MedTE-cl15-step-8000"
#: Tokens of a text, with the end-of-sequence token; the paper's.
MAX_TOKENS = 512
SENTENCE_PROMPT = "Given a sentence, retrieve sentences with the same meaning"
PASSAGE_PROMPT = "Represent this passage\npassage: "


def paper_prompt(instruction: str, prompt_type: PromptType | None = None) -> str:
    r"""Return the prompt of BMRetriever's released code: task sentence, newline, `Query: `.

    Args:
        instruction: The task's sentence.
        prompt_type: `document` for passages; any other value counts as a query.
    """
    return PASSAGE_PROMPT if prompt_type == PromptType.document else f"{instruction}\nQuery: "


class PaperBMRetriever(AbsEncoder):
    """BMRetriever as its authors score it: dot product of last-token vectors, cosine for STS.

    A text is truncated to 511 tokens and ends in the end-of-sequence token, whose vector of the last layer is
    used, in float32. mteb's entries score by cosine, and use as many tokens as the backbone allows.

    Args:
        model_name: A name of `BMRETRIEVER_DOT`, a Hub name or a folder.
        revision: Revision on the Hub; None for a folder.
        device: Torch device; default the best one available.
    """

    def __init__(self, model_name: str, revision: str | None = None, *, device: str | None = None) -> None:
        import torch  # lazy: torch
        from transformers import AutoModel, AutoTokenizer  # lazy: transformers

        source = HUB_NAMES.get(model_name, model_name)
        pinned: dict[str, Any] = {} if Path(source).is_dir() else {"revision": revision}
        self.device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self.tokenizer: Any = AutoTokenizer.from_pretrained(source, **pinned)
        auto: Any = AutoModel
        self.model = auto.from_pretrained(source, dtype=torch.float32, **pinned).eval().to(self.device)
        self.prompts_dict = {"BIOSSES": SENTENCE_PROMPT}
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
        prompt = PASSAGE_PROMPT
        if prompt_type != PromptType.document:
            prompt = paper_prompt(self.get_instruction(task_metadata, prompt_type), prompt_type)
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
            last = states[torch.arange(len(places)), lengths - 1].float().cpu().numpy()
            vectors[places] = last
        return vectors

    def similarity(self, embeddings1: Array, embeddings2: Array) -> Array:
        """Dot product of all pairs; after texts of an STS task, cosine."""
        return (cos_sim if self._cosine else dot_score)(embeddings1, embeddings2)

    def similarity_pairwise(self, embeddings1: Array, embeddings2: Array) -> Array:
        """Dot product of corresponding rows; after texts of an STS task, cosine."""
        return (pairwise_cos_sim if self._cosine else pairwise_dot_score)(embeddings1, embeddings2)


#: Tasks whose answers are MedQuAD's, on which MedTE (its ten sources) and BMRetriever (Table 9) were trained.
MEDQUAD_TASKS = frozenset({"MedicalQARetrieval", "MedQuADLiveQARetrieval", "retrieval_medquad_dataset"})
#: Tasks of English MedTEB whose source is one of MedTE's. Its authors dropped pairs whose second text is in
#: the benchmark word for word; first texts, and texts with small changes, may remain.
MEDTE_ENGLISH_TASKS = frozenset(
    name for name, task in english_tasks().items() if task.source not in ("Wikipedia", "PMC")
)


def _dot_variant(theirs: ModelMeta) -> ModelMeta:
    size = str(theirs.name).rpartition("-")[2].lower()
    return theirs.model_copy(
        update={
            "loader": PaperBMRetriever,
            "loader_kwargs": {},
            "name": f"medteb/bmretriever-{size}-dot",
            "similarity_fn_name": "dot",
            "training_datasets": {*(theirs.training_datasets or ()), "HotpotQA", *MEDQUAD_TASKS},
            "max_tokens": MAX_TOKENS,
            "adapted_from": theirs.name,
            "reference": "https://aclanthology.org/2024.emnlp-main.1241/",
            "citation": BMRETRIEVER_CITATION,
        }
    )


_MTEB_METAS = (BMRetriever_410M, BMRetriever_1B, BMRetriever_2B, BMRetriever_7B)
BMRETRIEVER_DOT: tuple[ModelMeta, ...] = tuple(_dot_variant(theirs) for theirs in _MTEB_METAS)
HUB_NAMES: Mapping[str, str] = {
    str(ours.name): str(theirs.name) for ours, theirs in zip(BMRETRIEVER_DOT, _MTEB_METAS, strict=True)
}


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


MEDTE = ModelMeta(
    loader=load_medte,
    name=MEDTE_HUB,
    revision="main",  # no source gives a revision
    release_date="2025-07-25",
    languages=["eng-Latn"],
    n_parameters=109_482_752,  # gte-base's
    n_embedding_parameters=30_522 * 768,
    memory_usage_mb=418,
    max_tokens=MAX_TOKENS,
    embed_dim=768,
    license=None,
    open_weights=True,
    public_training_code=None,
    public_training_data=None,
    reference=MEDTE_PAPER,
    framework=["Sentence Transformers", "PyTorch"],
    similarity_fn_name="cosine",
    use_instructions=False,
    adapted_from="thenlper/gte-base",
    model_type=["dense"],
    training_datasets={"TRECCOVID", "NFCorpus", "CUREv1", *MEDQUAD_TASKS, *MEDTE_ENGLISH_TASKS},
    citation=MEDTE_CITATION,
)
