"""Tokenizers trained on a recipe's own texts, and tokenizers of other models with an EOS token added."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from mar_st.errors import MarError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import nn
    from transformers import PreTrainedTokenizerBase

    from mar_st.model.encoders import Role

_LOADING_SETTINGS = ("is_local", "local_files_only")

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[EOS]")


def train_tokenizer(
    texts: Iterable[str], role: Role, *, vocab_size: int, max_token_length: int = 4, max_length: int = 512
) -> PreTrainedTokenizerFast:
    """Train a byte-pair tokenizer whose units are characters; deterministic for given texts.

    Text is NFKC-normalised, lower-cased, and white space is dropped (Chinese needs none, and the join between
    title and text should cost no token). Digits stay single, punctuation is split off.

    Args:
        texts: Training texts.
        role: The query side gets `[CLS] ... [SEP]`, the document side `... [EOS]`.
        vocab_size: Maximum size of the vocabulary, special tokens included. Every character of the texts is
            included, whatever the size.
        max_token_length: Maximum number of characters per token, from 2.
        max_length: Maximum number of tokens per text.

    Returns:
        A tokenizer that saves and loads like any other.
    """
    backend = Tokenizer(models.BPE(unk_token="[UNK]"))  # noqa: S106 -- a token of a vocabulary
    backend.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Lowercase(), normalizers.Replace(Regex(r"\s+"), "")]
    )
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Punctuation("isolated"), pre_tokenizers.Digits(individual_digits=True)]
    )
    backend.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=list(SPECIAL_TOKENS),
            max_token_length=max_token_length + 1,  # the trainer merges while the sum is less
            min_frequency=2,
            show_progress=False,
        ),
    )
    special = {token: backend.token_to_id(token) for token in SPECIAL_TOKENS}
    if role == "query":
        template, names = "[CLS] $A [SEP]", {"cls_token": "[CLS]", "sep_token": "[SEP]"}
    else:
        template, names = "$A [EOS]", {"eos_token": "[EOS]"}
    backend.post_processor = processors.TemplateProcessing(
        single=template, special_tokens=[(token, special[token]) for token in names.values()]
    )
    names |= {"unk_token": "[UNK]", "pad_token": "[PAD]"}
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=backend, model_max_length=max_length, **names
    )


def append_eos(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerFast:
    """Return a tokenizer that ends every text with EOS; all else, BOS included, is unchanged.

    The classes of some model families (GPT-NeoX, Gemma, Llama) build their template from flags when they are
    loaded, so an EOS set on them is lost in a saved folder, or a BOS with it. The result is of the general
    class, which saves and loads the template unchanged. Works on a copy.

    Args:
        tokenizer: A fast tokenizer with an EOS token that it does not append.

    Raises:
        MarError: The tokenizer has no fast form (`tokenizer.json`).
    """
    original = getattr(tokenizer, "backend_tokenizer", None)
    if original is None:
        raise MarError(
            f"{type(tokenizer).__name__} has no fast form (tokenizer.json), so EOS cannot be appended. "
            "Convert it with transformers, or give another pooling."
        )
    content = json.loads(original.to_str())
    content["post_processor"] = _ending_in(
        content.get("post_processor"), str(tokenizer.eos_token), int(tokenizer.eos_token_id)
    )
    return with_backend(tokenizer, Tokenizer.from_str(json.dumps(content)))


def check_tokenizer(tokenizer: Any, source: str) -> None:
    """Refuse a tokenizer that knows only special tokens, and give it a padding token if it has none.

    Transformers makes such a tokenizer for a folder that has no files of one. GPT-2 or Llama have no padding
    token; vectors do not depend on it, because masks hide padding. A tokenizer of another library is left as
    it is.

    Args:
        tokenizer: The tokenizer, or `None`.
        source: Folder or Hub name, for the message.

    Raises:
        MarError: The vocabulary has no other tokens.
    """
    if hasattr(tokenizer, "all_special_ids") and len(tokenizer) <= len(set(tokenizer.all_special_ids)):
        raise MarError(
            f"{source} has no vocabulary: its tokenizer knows only {len(tokenizer)} special tokens. Copy "
            "the tokenizer's files (tokenizer.json, or vocab.txt, or a .model file) into the model's folder."
        )
    if hasattr(tokenizer, "pad_token_id") and tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.unk_token or tokenizer.eos_token


def forget_lengths(model: nn.Module) -> None:
    """Remove the truncation and padding that earlier calls left in the tokenizers of a model.

    A saved folder holds them, so its bytes would depend on what the process did before. Each call sets its
    own again.
    """
    for module in model.modules():
        backend = getattr(getattr(module, "tokenizer", None), "backend_tokenizer", None)
        if backend is not None:
            backend.no_truncation()
            backend.no_padding()


def with_backend(tokenizer: PreTrainedTokenizerBase, backend: Tokenizer) -> PreTrainedTokenizerFast:
    """Return a tokenizer of the general class, which saves unchanged, with the settings of another.

    Args:
        tokenizer: Source of lengths, sides, chat template and names of special tokens.
        backend: Backend that splits texts; it has all special tokens.
    """
    kept = ("model_max_length", "padding_side", "truncation_side", "chat_template", "model_input_names")
    # Keep what transformers records when it reads a tokenizer, so that saving it gives the same files.
    noted = {name: tokenizer.init_kwargs[name] for name in _LOADING_SETTINGS if name in tokenizer.init_kwargs}
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=backend,
        clean_up_tokenization_spaces=False,
        **{name: getattr(tokenizer, name) for name in kept if getattr(tokenizer, name, None) is not None},
        **tokenizer.special_tokens_map,
        **noted,
    )


def _ending_in(processor: dict[str, Any] | None, token: str, number: int) -> dict[str, Any]:
    """Return the post-processor of a `tokenizer.json` with a token after every text."""
    steps = [] if processor is None else processor.get("processors", [processor])
    templates = [step for step in steps if step["type"] == "TemplateProcessing"]
    if not templates:
        template = processors.TemplateProcessing(single=f"$A {token}", special_tokens=[(token, number)])
        return {"type": "Sequence", "processors": [*steps, json.loads(template.__getstate__())]}
    template = templates[-1]
    template["single"].append({"SpecialToken": {"id": token, "type_id": 0}})
    template["special_tokens"][token] = {"id": token, "ids": [number], "tokens": [token]}
    return processor or template
