"""`BigramTransformer`: a transformer whose token embeddings depend on the neighbouring tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import torch
from safetensors.torch import load_file, save_file
from sentence_transformers.base.modules import Transformer
from torch import Tensor, nn

from mar_st.errors import MarError

#: File of the vectors beside those of the transformer.
BIGRAMS_FILE = "bigrams.safetensors"

#: Options of `load` that say where files are.
HUB_OPTIONS = ("token", "cache_folder", "revision", "local_files_only")


class Bigrams(nn.Module):
    """Vectors of frequent pairs of adjacent tokens, one for each token of a pair.

    They are buffers, not parameters: training leaves them as they are. Retrieval hardly gained from training
    them (docs/studies/e5.md), and an optimiser would need two further copies of them.

    Args:
        pairs: Token ids, `(pairs, 2)` integers, without repetition.
        first: Vectors added to the embedding of the first token of each pair, `(pairs, width)`.
        second: Vectors added to that of the second token, `(pairs, width)`.
    """

    pairs: Tensor
    first: Tensor
    second: Tensor
    keys: Tensor

    def __init__(self, pairs: Tensor, first: Tensor, second: Tensor) -> None:
        super().__init__()
        keys = pair_keys(pairs[:, 0].long(), pairs[:, 1].long())
        order = keys.argsort()
        self.register_buffer("pairs", pairs[order].to(torch.int32).contiguous())
        self.register_buffer("first", first[order].contiguous())
        self.register_buffer("second", second[order].contiguous())
        self.register_buffer("keys", keys[order].contiguous(), persistent=False)

    def __len__(self) -> int:
        return len(self.pairs)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the vectors added to the embedding of each token, `(texts, tokens, width)`.

        Padding adds nothing, because no pair contains a padding token.
        """
        rows = pair_rows(self.keys, ids)
        there = (rows >= 0)[..., None]
        at = rows.clamp_min(0)
        zero = self.first.new_zeros(())
        first = torch.where(there, self.first[at], zero)
        second = torch.where(there, self.second[at], zero)
        pad = nn.functional.pad
        return pad(first, (0, 0, 0, 1)) + pad(second, (0, 0, 1, 0))


class BigramTransformer(Transformer):
    """A Transformer that adds vectors of token pairs to its token embeddings.

    With `e(t)` the embedding of token `t`, the transformer reads, in the place of `e(t_i)`,

        e(t_i) + first(t_i, t_{i+1}) + second(t_{i-1}, t_i)

    where pairs without vectors add 0. So a few layers start from embeddings that already know the neighbours
    of each token, at the price of memory: looking up a pair costs microseconds. N-gram embeddings as input
    are described by Roy et al. (2022, N-Grammer) and Huang et al. (2025, Over-Tokenized Transformer), where
    they are trained; here `mar_st.model.context_means` computes them.

    A saved module is the folder of a Transformer with one more file. `SentenceTransformer` loads it with
    `trust_remote_code=True` if this package is installed; `MAR` needs no such consent.

    Built by `BigramTransformer.of`, or loaded.
    """

    bigrams: Bigrams

    @classmethod
    def of(cls, transformer: Transformer, bigrams: Bigrams) -> Self:
        """Return a transformer with vectors of token pairs; it shares the weights of the given one."""
        paired = cls.__new__(cls)
        paired.__dict__.update(vars(transformer))
        paired._modules = dict(transformer._modules)  # the given one must not get the new module
        paired.bigrams = bigrams.to(transformer.model.device)
        return paired

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Compute token vectors as `Transformer.forward`, from embeddings with neighbours."""
        ids = features["input_ids"]
        embedded = self.model.get_input_embeddings()(ids)
        inner = {name: value for name, value in features.items() if name != "input_ids"}
        inner["inputs_embeds"] = embedded + self.bigrams(ids).to(embedded.dtype)
        positions = self._positions(features, ids)
        output: dict[str, Any] = super().forward(inner | positions, **kwargs)
        for name in ("inputs_embeds", *positions):
            del output[name]
        return output | {"input_ids": ids}

    def _positions(self, features: dict[str, Any], ids: Tensor) -> dict[str, Tensor]:
        """Return the positions that RoBERTa models derive from token ids, but cannot from embeddings."""
        home = getattr(self.model, "embeddings", None)
        make = getattr(home, "create_position_ids_from_input_ids", None)
        if make is None or "position_ids" in features:
            return {}
        return {"position_ids": make(ids, home.padding_idx)}  # type: ignore[union-attr]

    def save(self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
        """Write the files of a Transformer, and `bigrams.safetensors`."""
        super().save(output_path, *args, safe_serialization=safe_serialization, **kwargs)
        tensors = {name: getattr(self.bigrams, name).detach().cpu() for name in ("pairs", "first", "second")}
        save_file(tensors, Path(output_path) / BIGRAMS_FILE, metadata={"format": "pt"})

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **kwargs: Any) -> Self:  # type: ignore[override]
        """Load a saved module; the vectors of token pairs get the dtype of the token embeddings.

        Raises:
            MarError: `backend` is not torch.
        """
        place = f"{model_name_or_path}/{subfolder}".rstrip("/")
        if (backend := kwargs.pop("backend", "torch")) != "torch":
            raise MarError(
                f"{place} has vectors of token pairs, which sentence-transformers computes only with torch, "
                f"not with {backend}. Leave backend out, or write the encoder with mar export."
            )
        hub = {name: kwargs[name] for name in HUB_OPTIONS if name in kwargs} | {"subfolder": subfolder}
        tensors = load_file(str(cls.load_file_path(model_name_or_path, filename=BIGRAMS_FILE, **hub)))
        bigrams = Bigrams(tensors["pairs"], tensors["first"], tensors["second"])
        plain: Any = Transformer.load(model_name_or_path, subfolder=subfolder, **kwargs)
        return cls.of(plain, bigrams.to(plain.model.get_input_embeddings().weight.dtype))


def pair_rows(keys: Tensor, ids: Tensor) -> Tensor:
    """Return the row of each two adjacent tokens among sorted keys, -1 for those that are not there.

    Args:
        keys: Keys of pairs, `(pairs,)` int64, sorted.
        ids: Token ids, `(texts, tokens)` int64.

    Returns:
        `(texts, tokens - 1)` int64.
    """
    wanted = pair_keys(ids[:, :-1], ids[:, 1:]).contiguous()
    at = torch.searchsorted(keys, wanted).clamp_max(len(keys) - 1)
    return torch.where(keys[at] == wanted, at, -1)


def pair_keys(first: Tensor, second: Tensor) -> Tensor:
    """Return one number for each pair of token ids, int64; pairs are ordered as their ids."""
    return (first << 32) | second
