"""Tokenizers trained on a recipe's own texts, for encoders that start from random weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mar_st.encoders import Role

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
        vocab_size: Size of the vocabulary at most, special tokens included. Every character of the texts gets
            its place, whatever the size.
        max_token_length: Characters per token at most; 1 gives a character-level tokenizer.
        max_length: Tokens per text.

    Returns:
        A tokenizer that saves and loads like any other.
    """
    backend = Tokenizer(models.BPE(unk_token="[UNK]"))  # noqa: S106 -- a token of a vocabulary
    backend.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Lowercase(), normalizers.Replace(Regex(r"\s+"), "")]
    )
    splits = [pre_tokenizers.Punctuation("isolated"), pre_tokenizers.Digits(individual_digits=True)]
    if max_token_length == 1:  # the trainer merges two characters whatever its limit
        splits.append(pre_tokenizers.Split(Regex("."), "isolated"))
    backend.pre_tokenizer = pre_tokenizers.Sequence(splits)
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
