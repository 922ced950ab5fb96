"""The query encoder that is exported: its settings, its tokenizer and its tables of embeddings."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from mar_st.export.graph import ExportError, Parts, parts_of, position_offset
from mar_st.files import open_reserved
from mar_st.modules.bigrams import BigramTransformer, pair_keys
from mar_st.online.front import QueryTokenizer
from mar_st.online.listing import BIGRAM_FILES, EMBEDDING_TABLES, TOKENIZER, Listing
from mar_st.online.torch_encoder import TorchEncoder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

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

#: Rows of the table that are converted at a time.
_BLOCK_ROWS = 16384


class ExportSource(NamedTuple):
    """A query encoder and its parts.

    Attributes:
        encoder: The encoder as sentence-transformers computes it.
        parts: Its modules.
        name: Source that the encoder was loaded from.
    """

    encoder: TorchEncoder
    parts: Parts
    name: str

    @property
    def model(self) -> Any:
        """Return the transformers model."""
        return self.parts.transformer.model


def open_source(name: str, query: str | None = None) -> ExportSource:
    """Load the query side of a model on the CPU, where the exported files are computed too.

    Raises:
        ExportError: The modules cannot be exported.
        MarError: The model does not exist, or it has no query side.
    """
    encoder = TorchEncoder.open(name, query=query, device="cpu")
    _ = encoder.identity  # computed once, of the weights as they were saved
    encoder.model.float()  # weights saved in half precision are exported from the same values
    if encoder.model.truncate_dim is not None:
        raise ExportError(
            f"{name} cuts its vectors after its modules (truncate_dim={encoder.model.truncate_dim}), which "
            "is not part of the export. Add a Dense layer that cuts (mar_st.modules.truncation)."
        )
    return ExportSource(encoder, parts_of(encoder.modules), name)


def write_front(source: ExportSource, folder: Path, *, exact: bool) -> tuple[Listing, str]:
    """Write the tokenizer, the table of embeddings, and vectors of token pairs.

    Args:
        source: The encoder.
        folder: An existing folder.
        exact: Whether a variant needs the unchanged embeddings; otherwise float16 is enough.

    Returns:
        The listing, without variants, and the type of the exact table (a key of `EMBEDDING_TABLES`; float16
        if that loses nothing, as for weights that were published in float16).

    Raises:
        ExportError: The tokenizer has no fast form.
    """
    encoder, transformer, model = source.encoder, source.parts.transformer, source.model
    tokenizer = transformer.tokenizer
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ExportError(
            f"{type(tokenizer).__name__} has no fast form (tokenizer.json), so it cannot be exported."
        )
    content = json.loads(backend.to_str()) | {"padding": None, "truncation": None}
    (folder / TOKENIZER).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    lossless = _write_table(model.get_input_embeddings(), folder, exact=exact)
    paired = isinstance(transformer, BigramTransformer)
    if paired:
        _write_bigrams(transformer, folder, exact=exact)
    special = [token for token in tokenizer.all_special_ids if token is not None]
    listing = Listing(
        model={
            "source": source.name,
            "identity": encoder.identity,
            "query": encoder.query,
            "model_type": model.config.model_type,
        },
        dim=encoder.dim,
        normalised=encoder.normalised,
        similarity=encoder.model.similarity_fn_name,
        max_length=encoder.max_length,
        prompts=dict(encoder.prompts),
        pooling={
            "mode": source.parts.pooling,
            "include_prompt": source.parts.include_prompt,
            "special": special,
        },
        positions=position_offset(model),
        filler=int(tokenizer.pad_token_id or 0),
        truncation=str(tokenizer.truncation_side),
        variants={},
        chosen="",
        files={},
        space=encoder.space,
        bigrams=paired,
    )
    return listing, "float16" if lossless else "float32"


def _write_table(embedding: Any, folder: Path, *, exact: bool) -> bool:
    """Write token embeddings as float16, and also unchanged if float16 loses something and `exact` is set.

    They are the outputs of the layer, not its weight: the layers of Gemma models scale it.

    Returns:
        Whether float16 loses nothing.

    Raises:
        ExportError: A value is not finite, or too large for float16.
    """
    shape = tuple(embedding.weight.shape)
    lossless = _write_half(_outputs(embedding), shape, folder / EMBEDDING_TABLES["float16"])
    if exact and not lossless:
        table = open_reserved(folder / EMBEDDING_TABLES["float32"], np.float32, shape)
        start = 0
        for block in _outputs(embedding):
            table[start : start + len(block)] = block
            start += len(block)
        table.flush()
    return lossless


def _outputs(embedding: Any) -> Iterator[np.ndarray]:
    """Yield the vectors of all tokens, a block at a time; a copy of all would be most of the memory."""
    for block in torch.split(torch.arange(len(embedding.weight)), _BLOCK_ROWS):
        with torch.inference_mode():
            yield embedding(block).float().numpy()


def _write_bigrams(transformer: BigramTransformer, folder: Path, *, exact: bool) -> None:
    """Write vectors of token pairs, as float16 unless that loses something and `exact` is set.

    Raises:
        ExportError: A value is not finite, or too large for float16.
    """
    bigrams = transformer.bigrams
    keys, *paths = (folder / name for name in BIGRAM_FILES)
    np.save(keys, pair_keys(bigrams.pairs[:, 0].long(), bigrams.pairs[:, 1].long()).numpy())
    for vectors, path in zip((bigrams.first, bigrams.second), paths, strict=True):
        array: np.ndarray = vectors.numpy()
        blocks = (array[start : start + _BLOCK_ROWS] for start in range(0, len(array), _BLOCK_ROWS))
        if not _write_half(blocks, array.shape, path) and exact:
            np.save(path, array)


def _write_half(blocks: Iterable[np.ndarray], shape: tuple[int, ...], path: Path) -> bool:
    """Write an array `(rows, width)` as float16.

    Args:
        blocks: Blocks of its rows, in order, float32.
        shape: Shape of the array.
        path: File to write.

    Returns:
        Whether this loses nothing.

    Raises:
        ExportError: A value is not finite, or too large for float16.
    """
    half = open_reserved(path, np.float16, shape)
    lossless, start = True, 0
    for block in blocks:
        written = half[start : start + len(block)]
        start += len(block)
        with np.errstate(over="ignore"):
            written[:] = block
        if not np.isfinite(written).all():
            raise ExportError(
                "The token embeddings hold values that are not finite, or too large for float16."
            )
        lossless = lossless and bool((written.astype(np.float32) == block).all())
    half.flush()
    return lossless


def check_tokens(source: ExportSource, folder: Path, listing: Listing, texts: Sequence[str]) -> None:
    """Make sure that the exported tokenizer gives the tokens of the original.

    Raises:
        ExportError: The tokens of a text differ; the message shows the text.
    """
    exported = QueryTokenizer(folder / TOKENIZER, listing.max_length, listing.truncation)
    for text in [*PROBE_TEXTS, *texts]:
        prompted = (listing.prompts.get("query") or "") + text
        expected = source.parts.transformer.preprocess([prompted])["input_ids"][0].tolist()
        actual = exported.ids([prompted])[0]
        if actual != expected:
            raise ExportError(
                f"The tokenizer of {source.name} does more than its tokenizer.json says: for {text[:40]!r} "
                f"it gives {expected[:12]}, the exported one {actual[:12]}. It cannot be exported."
            )
