"""The two encoders of a MAR as lists of sentence-transformers modules, and the checks they must pass.

A source is a folder or Hub name of a transformers or sentence-transformers model, or a `(config, tokenizer)`
pair for an encoder with random weights.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from transformers import AutoModel, PretrainedConfig, PreTrainedTokenizerBase

from mar_st.adapters import merge_lora
from mar_st.errors import MarError

if TYPE_CHECKING:
    from sentence_transformers.base.modules.module import Module

Role: TypeAlias = Literal["query", "document"]
EncoderSource: TypeAlias = str | Path | tuple[PretrainedConfig, PreTrainedTokenizerBase]

#: Tokens per text on both sides, as in the published models.
DEFAULT_MAX_LENGTH = 512


def load_encoder(
    source: EncoderSource,
    role: Role,
    *,
    max_length: int | None = None,
    merge_adapter: bool = True,
    model_kwargs: dict[str, Any] | None = None,
) -> list[Module]:
    """Load one side of a MAR as `[Transformer, Pooling]`.

    The query encoder is pooled at its first token (CLS), the document encoder at its last (EOS), which is
    appended where the tokenizer does not do so itself (MAR, section on encoders). Padding may be on either
    side: pooling follows the attention mask, and rotary positions are relative.

    Args:
        source: Folder, Hub name, or `(config, tokenizer)` for random weights.
        role: Which side this encoder is.
        max_length: Tokens per text, special tokens included; default 512 or what the model takes, if less.
        merge_adapter: Merge a LoRA adapter that the folder holds into the weights (default) or keep it.
        model_kwargs: Passed to the transformers loader (`dtype`, `attn_implementation`, ...).

    Returns:
        Two modules; the second outputs `(batch, hidden_size)` float vectors.

    Raises:
        MarError: The tokenizer lacks the token that this side is pooled at, or does not fit the embeddings.
    """
    if isinstance(source, tuple):
        with tempfile.TemporaryDirectory() as folder:
            _write_random(source, Path(folder))
            transformer = Transformer(folder, model_kwargs=dict(model_kwargs or {}))
    else:
        folder = _transformer_folder(str(source))
        transformer = Transformer(folder, model_kwargs=dict(model_kwargs or {}))
    if merge_adapter:
        merge_lora(transformer)
    name = source if isinstance(source, str | Path) else type(source[0]).__name__
    _prepare_tokenizer(transformer, role, str(name))
    limit = transformer.max_seq_length or DEFAULT_MAX_LENGTH
    transformer.max_seq_length = min(limit, max_length or DEFAULT_MAX_LENGTH)
    pooling = Pooling(transformer.get_embedding_dimension(), "cls" if role == "query" else "lasttoken")
    return [transformer, pooling]


def _write_random(source: tuple[PretrainedConfig, PreTrainedTokenizerBase], folder: Path) -> None:
    config, tokenizer = source
    model: Any = AutoModel.from_config(config)  # type: ignore[no-untyped-call]
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _transformer_folder(source: str) -> str:
    """The first module's folder of a sentence-transformers folder; any other source itself."""
    listing = Path(source) / "modules.json"
    if not listing.is_file():
        return source
    first = json.loads(listing.read_text(encoding="utf-8"))[0]
    if not first["type"].endswith("Transformer"):
        raise MarError(
            f"{source} starts with a {first['type'].rsplit('.', 1)[-1]} module; an encoder needs a "
            "Transformer there. Load an asymmetric model as a whole with MAR.from_pretrained."
        )
    return str(Path(source) / first["path"])


def _prepare_tokenizer(transformer: Transformer, role: Role, name: str) -> None:
    """Check vocabulary sizes and the pooled token; append EOS and a padding token on the document side."""
    tokenizer = transformer.tokenizer
    if tokenizer is None:
        raise MarError(f"{name} has no tokenizer; save one beside the weights.")
    embedding: Any = transformer.model.get_input_embeddings()
    rows = embedding.weight.shape[0]
    if len(tokenizer) > rows:
        raise MarError(
            f"The tokenizer of {name} has {len(tokenizer)} tokens but its embedding has {rows} rows; "
            "they belong to different models. Use the tokenizer the weights were trained with."
        )
    if role == "query":
        first = tokenizer("a")["input_ids"][0]
        if first not in {tokenizer.cls_token_id, tokenizer.bos_token_id} - {None}:
            raise MarError(
                f"The query encoder is pooled at its first token, but the tokenizer of {name} does not start "
                "a text with a CLS (or BOS) token. Give an encoder of the BERT family."
            )
        return
    if tokenizer.eos_token_id is None:
        raise MarError(
            f"The document encoder is pooled at its EOS token, but the tokenizer of {name} defines none. "
            "Set tokenizer.eos_token."
        )
    if tokenizer("a")["input_ids"][-1] != tokenizer.eos_token_id:
        tokenizer.add_eos_token = True
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.unk_token or tokenizer.eos_token
