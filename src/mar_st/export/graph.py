"""The query encoder as one graph over packed texts: token embeddings in, final vectors out.

Texts are concatenated in a single row, so nothing is computed for padding, and one dynamic
dimension covers both one short query and a batch of many. Which tokens see each other follows from their
segment numbers. The table of token embeddings stays outside: a graph that holds it would keep all of it in
memory, whereas only the rows that queries use are read from a table in a mapped file. All variants share
these tables, the tokenizer and the settings.
"""

from __future__ import annotations

import inspect
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.lib.format import open_memmap
from torch import nn

from mar_st.errors import MarError
from mar_st.modules.bigrams import BigramTransformer, pair_keys
from mar_st.online.front import QueryTokenizer
from mar_st.online.listing import BIGRAM_FILES, EMBEDDINGS, TOKENIZER, Listing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from mar_st.online.torch_encoder import TorchEncoder


#: Pooling modes that take one token.
SINGLE_TOKEN_POOLINGS = ("cls", "lasttoken")


@dataclass(frozen=True)
class Parts:
    """Parts of a query encoder, taken from its sentence-transformers modules.

    Attributes:
        transformer: The sentence-transformers Transformer.
        pooling: Its pooling mode.
        tail: Modules after pooling, in order.
    """

    transformer: Any
    pooling: str
    tail: tuple[nn.Module, ...]


def parts_of(modules: Sequence[nn.Module]) -> Parts:
    """Take a chain of sentence-transformers modules apart.

    Raises:
        MarError: The chain does not start with a Transformer and a Pooling, or has an unsupported module
            or pooling.
    """
    names = [type(module).__name__ for module in modules]
    if names[0] not in ("Transformer", "BigramTransformer") or names[1:2] != ["Pooling"]:
        raise MarError(
            f"Only encoders that start with Transformer and Pooling can be exported; this one is made of "
            f"{', '.join(names)}."
        )
    transformer: Any
    pooling: Any
    transformer, pooling = modules[:2]
    mode = pooling.pooling_mode
    poolings = (*SINGLE_TOKEN_POOLINGS, "mean")
    if mode not in poolings:
        raise MarError(f"Pooling {mode!r} cannot be exported; {', '.join(poolings)} can.")
    known = ("Dense", "Normalize")
    for name in names[2:]:
        if name not in known:
            raise MarError(f"A {name} module after pooling cannot be exported; {', '.join(known)} can.")
    if not pooling.include_prompt:
        raise MarError("A pooling that leaves out the prompt cannot be exported.")
    return Parts(transformer, mode, tuple(modules[2:]))


class PackedEncoder(nn.Module):
    """Compute vectors of concatenated texts.

    Inputs of `forward` (`T` tokens, `n` texts):

    - `embeddings` `(T, hidden)` float32: rows of the token table
    - `positions` `(T,)` int64: position of each token in its text
    - `segments` `(T,)` int32: number of the text it belongs to; fillers have a separate number
    - `pool`: for `cls` and `lasttoken` the rows of the pooled tokens, `(n,)` int64, otherwise weights
      `(n, T)` float32

    Output: `(n, dim)` float32.

    Args:
        parts: The encoder, in evaluation mode.
    """

    def __init__(self, parts: Parts) -> None:
        super().__init__()
        model = parts.transformer.model
        self.model = model
        self.tail = nn.ModuleList(parts.tail)
        self.single = parts.pooling in SINGLE_TOKEN_POOLINGS
        config = model.config
        self.causal = is_causal(model)
        kinds = set(getattr(config, "layer_types", None) or ())
        self.by_kind = bool(kinds - {"full_attention"})
        self.reach = _reach(config, kinds, causal=self.causal)
        takes = inspect.signature(type(model).forward).parameters
        if "inputs_embeds" not in takes or "position_ids" not in takes:
            raise MarError(
                f"{type(model).__name__} takes no token embeddings or positions from outside, so it cannot "
                "be exported."
            )

    def forward(
        self, embeddings: torch.Tensor, positions: torch.Tensor, segments: torch.Tensor, pool: torch.Tensor
    ) -> torch.Tensor:
        """Return the vectors of packed texts, see the class."""
        masks: Any = self._masks(segments)
        options: dict[str, Any] = {"use_cache": False} if self.causal else {}
        output = self.model(
            inputs_embeds=embeddings[None], position_ids=positions[None], attention_mask=masks, **options
        )
        hidden = output.last_hidden_state[0]
        pooled = hidden[pool] if self.single else pool @ hidden
        features = {"sentence_embedding": pooled}
        for module in self.tail:
            features = module(features)
        vectors: torch.Tensor = features["sentence_embedding"]
        return vectors

    def _masks(self, segments: torch.Tensor) -> Any:
        """Return the additive masks `(1, 1, T, T)`: of all layers, or by kind of layer."""
        same = segments[:, None] == segments[None, :]
        if self.causal:
            rows = torch.arange(segments.shape[0], device=segments.device)
            same = same & (rows[:, None] >= rows[None, :])
        near = same
        if self.reach is not None:
            rows = torch.arange(segments.shape[0], device=segments.device)
            near = same & ((rows[:, None] - rows[None, :]).abs() <= self.reach)
        if not self.by_kind:
            return _additive(near)
        masks = {"full_attention": _additive(same)}
        if self.reach is not None:
            masks["sliding_attention"] = _additive(near)
        return masks


def _reach(config: Any, kinds: set[str], *, causal: bool) -> int | None:
    """Return the largest distance between tokens that see each other in a sliding window, if there is one.

    Models without `layer_types` (Mistral) apply the window in all layers. The window counts a token itself,
    except in models made for both directions (ModernBERT), where it is the distance on each side.
    """
    window = getattr(config, "sliding_window", None)
    decoder = causal or getattr(config, "is_causal", None) is False
    if window is None or (kinds and "sliding_attention" not in kinds) or (not kinds and not decoder):
        return None
    made_causal = causal or bool(getattr(config, "use_bidirectional_attention", False))  # EmbeddingGemma
    return int(window) - 1 if made_causal else int(window)


def _additive(seen: torch.Tensor) -> torch.Tensor:
    # Not minus infinity: kernels that add it to bfloat16 scores would make NaN of rows that see nothing.
    return torch.where(seen, 0.0, -1e4)[None, None]


def is_causal(model: Any) -> bool:
    """Return True if a transformer uses causal attention: each token sees only those before it.

    `is_causal: false` in the config makes a decoder bidirectional; its layers still say the opposite.
    """
    if getattr(model.config, "is_causal", None) is False:
        return False
    for module in model.modules():
        causal = getattr(module, "is_causal", None)
        if causal is not None:
            return bool(causal)
    return False


def position_offset(model: Any) -> int:
    """Return the number of the first position: after the padding index for RoBERTa models, else 0."""
    for module in model.modules():
        padding = getattr(module, "padding_idx", None)
        if isinstance(padding, int) and isinstance(
            getattr(module, "position_embeddings", None), nn.Embedding
        ):
            return padding + 1
    return 0


#: Texts on which the exported tokenizer must agree with the original, in addition to those of the user.
PROBE_TEXTS = (
    "",
    "a",
    "头疼吃什么药",
    "  两个 空格\t与\n换行 ",
    "COVID-19（新冠）😷 1.5mg/kg",
    "长" * 3000,
    "ﬁ ½ Ａ",
)

#: Rows of a table that are converted at a time; a copy of all would be most of the memory.
_BLOCK_ROWS = 16384


def write_front(encoder: TorchEncoder, parts: Parts, folder: Path, *, source: str) -> Listing:
    """Write the tokenizer, the table of embeddings, and vectors of token pairs.

    Args:
        encoder: The encoder, in float32.
        parts: Its parts.
        folder: An existing folder.
        source: Name of the model, for the listing.

    Returns:
        The listing, without variants.

    Raises:
        MarError: The tokenizer has no fast form, or an embedding is not finite or too large for float16.
    """
    transformer = parts.transformer
    model, tokenizer = transformer.model, transformer.tokenizer
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise MarError(
            f"{type(tokenizer).__name__} has no fast form (tokenizer.json), so it cannot be exported."
        )
    content = json.loads(backend.to_str()) | {"padding": None, "truncation": None}
    (folder / TOKENIZER).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    embedding: Any = model.get_input_embeddings()

    def outputs(rows: slice) -> np.ndarray:
        # The outputs of the layer, not its weight: the layers of Gemma models scale it.
        with torch.inference_mode():
            block: np.ndarray = embedding(torch.arange(rows.start, rows.stop)).float().numpy()
        return block

    _write_table(outputs, tuple(embedding.weight.shape), folder / EMBEDDINGS)
    if paired := isinstance(transformer, BigramTransformer):
        bigrams = transformer.bigrams
        keys, *paths = (folder / name for name in BIGRAM_FILES)
        np.save(keys, pair_keys(bigrams.pairs[:, 0].long(), bigrams.pairs[:, 1].long()).numpy())
        for vectors, path in zip((bigrams.first, bigrams.second), paths, strict=True):
            array: np.ndarray = vectors.numpy()
            _write_table(array.__getitem__, array.shape, path)
    return Listing(
        model={
            "source": source,
            "identity": encoder.identity,
            "query": encoder.query,
            "model_type": model.config.model_type,
        },
        dim=encoder.dim,
        normalised=encoder.normalised,
        similarity=encoder.model.similarity_fn_name,
        max_length=encoder.max_length,
        prompts=dict(encoder.prompts),
        pooling=parts.pooling,  # type: ignore[arg-type]
        positions=position_offset(model),
        filler=int(tokenizer.pad_token_id or 0),
        truncation=tokenizer.truncation_side,
        variants={},
        chosen="",
        files={},
        space=encoder.space,
        bigrams=paired,
    )


def _write_table(block_of: Callable[[slice], np.ndarray], shape: tuple[int, ...], path: Path) -> None:
    """Write an array `(rows, width)` as float16.

    Args:
        block_of: Returns a block of rows, float32.
        shape: Shape of the array.
        path: The file.
    """
    table = open_memmap(path, "w+", np.float16, shape)
    for start in range(0, shape[0], _BLOCK_ROWS):
        rows = slice(start, min(start + _BLOCK_ROWS, shape[0]))
        with np.errstate(over="ignore"):
            table[rows] = block_of(rows)
        if not np.isfinite(table[rows]).all():
            raise MarError("The token embeddings hold values that are not finite, or too large for float16.")
    table.flush()


def check_tokens(parts: Parts, folder: Path, listing: Listing, texts: Sequence[str]) -> None:
    """Make sure that the exported tokenizer gives the tokens of the original.

    Raises:
        MarError: The tokens of a text differ; the message shows the text.
    """
    exported = QueryTokenizer(folder / TOKENIZER, listing.max_length, listing.truncation)
    for text in [*PROBE_TEXTS, *texts]:
        prompted = (listing.prompts.get("query") or "") + text
        expected = parts.transformer.preprocess([prompted])["input_ids"][0].tolist()
        actual = exported.ids([prompted])[0]
        if actual != expected:
            raise MarError(
                f"The tokenizer of {listing.model['source']} does more than its tokenizer.json says: for "
                f"{text[:40]!r} it gives {expected[:12]}, the exported one {actual[:12]}."
            )
