"""`LookupEncoder`: a query encoder that looks up and sums vectors, as a sentence-transformers module."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from safetensors.torch import save_file
from sentence_transformers.base.modules import InputModule
from torch import Tensor, nn

from mar_st.lookup.features import CONFIG_KEYS, DICTIONARY, Features, saved_features
from mar_st.modules.bigrams import HUB_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence


class LookupEncoder(InputModule):
    """Sums learnt vectors of a text's character n-grams and words; no transformer, no tokenizer.

    With `c_f` the count of feature `f` in the text, `w_f` its weight and `v_f` its vector,

        x = b + sum_f a_f v_f / |a|,    a_f = w_f sqrt(c_f)

    Features and their normalisation are those of `mar_st.lookup.features`. A text without a known feature
    gives `b`, never NaN. Prompts are ignored: a stored prompt that is passed as `prompt` (as `encode_query`
    does) is left out, because it would add constant features to every text. So one model can combine this
    module with transformers that use prompts.

    Args:
        features: Dictionary and rules.
        dim: Width of the vectors.

    Example:
        ```python
        encoder = fit_lookup(texts, teacher.encode_query(texts))
        model = SentenceTransformer(modules=[encoder, Normalize()])
        ```
    """

    config_keys = CONFIG_KEYS
    save_in_root = False
    tokenizer: Any = None

    def __init__(self, features: Features, dim: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.features, self.dim = features, int(dim)
        self.embedding = nn.EmbeddingBag(len(features), self.dim, mode="sum")
        self.weight = nn.Parameter(torch.ones(len(features)))
        self.bias = nn.Parameter(torch.zeros(self.dim))

    @property
    def max_seq_length(self) -> int:
        """Characters (not tokens) of a normalised text that count; the rest is cut."""
        return self.features.max_length

    @max_seq_length.setter
    def max_seq_length(self, value: int) -> None:
        self.features.max_length = int(value)

    def get_embedding_dimension(self) -> int:
        """Return the width of the vectors."""
        return self.dim

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Return the characters of each normalised text, which is what `max_seq_length` counts."""
        return [self.features.size(text) for text in texts]

    def preprocess(
        self, inputs: Sequence[Any], prompt: str | None = None, max_length: int | None = None, **kwargs: Any
    ) -> dict[str, Tensor]:
        """Return the features of texts, one row per text, filled up with features of count 0.

        Args:
            inputs: Texts.
            prompt: Ignored, see the class.
            max_length: Maximum number of characters of a text; default the module's own.
            **kwargs: Arguments of sentence-transformers for modules of other kinds; ignored.

        Returns:
            `input_ids` int64, `attention_mask` int64 and `counts` (square roots of counts) float32, each
            `(texts, features)`.
        """
        del prompt, kwargs
        occurrences = [self.features.counts(text, max_length) for text in inputs]
        width = max([1, *map(len, occurrences)])
        ids = np.zeros((len(occurrences), width), dtype=np.int64)
        counts = np.zeros((len(occurrences), width), dtype=np.float32)
        for row, of_text in enumerate(occurrences):
            ids[row, : len(of_text)] = list(of_text)
            counts[row, : len(of_text)] = list(of_text.values())
        return {
            "input_ids": torch.from_numpy(ids),
            "attention_mask": torch.from_numpy((counts > 0).astype(np.int64)),
            "counts": torch.from_numpy(np.sqrt(counts)),
        }

    def forward(self, features: dict[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        """Add `sentence_embedding` `(texts, dim)` to the features, in the dtype of the vectors."""
        del kwargs
        ids, table = features["input_ids"], self.embedding.weight
        parts = self.weight.float()[ids] * features["counts"].float()
        # Not F.normalize: the gradient of its norm is NaN if a text has no known feature.
        length = parts.square().sum(dim=1, keepdim=True).clamp_min(1e-12).sqrt()
        vectors = self.embedding(ids, per_sample_weights=(parts / length).to(table.dtype))
        features["sentence_embedding"] = vectors + self.bias
        return features

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings that are saved, with a digest of the dictionary."""
        return {
            "embedding_dimension": self.dim,
            "lengths": list(self.features.lengths),
            "max_length": self.features.max_length,
            "dictionary": self.features.digest(),
        }

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Write `config.json`, `features.json` and `model.safetensors`."""
        del args, kwargs
        folder = Path(output_path)
        self.save_config(output_path)
        (folder / DICTIONARY).write_text(self.features.to_json(), encoding="utf-8")
        save_file(
            {name: tensor.detach().contiguous() for name, tensor in self.state_dict().items()},
            folder / "model.safetensors",
        )

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **kwargs: Any) -> Self:  # type: ignore[override]
        """Load the module in the dtype that it was saved in, or `model_kwargs["dtype"]`.

        Raises:
            MarError: The dictionary is missing or damaged, or does not fit the vectors.
        """
        hub = {name: kwargs[name] for name in HUB_OPTIONS if name in kwargs} | {"subfolder": subfolder}
        place = f"{model_name_or_path}/{subfolder}".rstrip("/")
        dictionary = cls.load_file_path(model_name_or_path, filename=DICTIONARY, **hub)
        config = cls.load_config(model_name_or_path, **hub)
        weights = cls.load_torch_weights(model_name_or_path, **hub)
        table = weights["embedding.weight"]
        if "scales" in weights:  # of `mar export`: int8, with a scale per feature
            table = weights["embedding.weight"] = table * weights.pop("scales")[:, None]
        features = saved_features(place, config, dictionary, tuple(table.shape))
        module = cls(features, config["embedding_dimension"]).to(table.dtype)
        module.load_state_dict(weights)
        dtype = (kwargs.get("model_kwargs") or {}).get("dtype", "auto")
        if dtype == "auto":
            return module
        return module.to(getattr(torch, dtype) if isinstance(dtype, str) else dtype)
