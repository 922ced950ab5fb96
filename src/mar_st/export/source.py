"""What all variants of an exported encoder share: settings, tokenizer and tables of embeddings."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.lib.format import open_memmap

from mar_st.errors import MarError
from mar_st.export.graph import Parts, position_offset
from mar_st.modules.bigrams import BigramTransformer, pair_keys
from mar_st.online.front import QueryTokenizer
from mar_st.online.listing import BIGRAM_FILES, EMBEDDINGS, TOKENIZER, Listing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from mar_st.online.torch_encoder import TorchEncoder

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
