"""Encoders of exactly the published shapes: random weights, made-up tokenizers of the published sizes.

    PYTHONPATH=src python benchmarks/published_shapes.py Qwen/Qwen3-4B OUT    # 8 GB, a minute or two

`write_backbone` writes a folder that loads like the published model: the same configuration, tensor names,
dtype on disk, shards, tokenizer class, special tokens and vocabulary size. Only the numbers in it are random,
and the tokens are pieces of the packaged texts, filled up with made-up ones: a text gets about as many tokens
as a real tokenizer gives it. Weights are drawn shard by shard, so writing needs the memory of one shard.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import shutil
import string
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mar_st.planning.backbones import Shape

GTE = "Alibaba-NLP/gte-multilingual-mlm-base"
QWEN_4B = "Qwen/Qwen3-4B"
QWEN_8B = "Qwen/Qwen3-8B"

#: Tokens of the published tokenizers; embeddings have more rows (250,048 and 151,936).
XLM_R_TOKENS = 250_002
XLM_R_SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
QWEN_TOKENS = 151_643
QWEN_SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<tool_call>",
    "</tool_call>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
)

#: Tokens of `tiny` encoders.
TINY_TOKENS = 3000
TINY = {"gte": (32, 2), "qwen3": (64, 4)}
SEED = 0


def write_backbone(
    name: str,
    folder: Path,
    *,
    dtype: str | None = "bfloat16",
    seed: int = SEED,
    texts: Sequence[str] | None = None,
    tiny: bool = False,
    shard_bytes: int = 10**9,
    device: str = "cpu",
) -> Path:
    """Write a transformers folder of a published shape.

    Args:
        name: One of `mar_st.planning.backbones.known_backbones()` of type gte or qwen3.
        folder: Written aside and moved here; left alone if it is there.
        dtype: Of the weights on disk; `None` for that of the published ones.
        seed: Of the weights; equal arguments give equal bytes.
        texts: What the tokens are made of; default the packaged edition's corpus.
        tiny: A small configuration of the same architecture, for rehearsals.
        shard_bytes: Size of a weights file at most, unless one tensor is larger.
        device: Where the weights are drawn; a GPU draws faster, and other numbers.

    Returns:
        The folder.
    """
    if folder.is_dir():
        return folder
    shape = shape_of(name, tiny=tiny)
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    tokenizer = make_tokenizer(shape, texts or packaged_texts(), TINY_TOKENS if tiny else None)
    tokenizer.save_pretrained(part)
    _write_weights(shape, part, dtype or shape.dtype, seed, shard_bytes, device)
    part.replace(folder)
    return folder


def shape_of(name: str, *, tiny: bool = False) -> Shape:
    """The published shape, or a small one of its architecture."""
    from mar_st.planning.backbones import known_backbones
    from mar_st.planning.tiny import small_config

    shape = known_backbones()[name]
    if not tiny:
        return shape
    width, layers = TINY[shape.config["model_type"]]
    config = small_config(shape, width, layers)
    # Long enough for texts of 512 tokens.
    config |= {"vocab_size": TINY_TOKENS + 100, "max_position_embeddings": 1024}
    return type(shape)(name, config, shape.dtype)


def packaged_texts() -> list[str]:
    """Documents and queries of the packaged edition."""
    from mar_st.data.rows import locate

    root = locate("package:medteb_mteb/MedTEBRetrieval")
    texts = []
    for file in ("corpus.jsonl", "queries.jsonl"):
        with (root / file).open(encoding="utf-8") as lines:
            texts += [json.loads(line)["text"] for line in lines]
    return texts


def make_tokenizer(shape: Shape, texts: Sequence[str], tokens: int | None = None) -> Any:
    """A tokenizer of the class, special tokens and size that the shape is published with.

    Args:
        shape: Type gte or qwen3.
        texts: What its tokens are made of.
        tokens: Another size, without Qwen's special tokens.
    """
    kind = shape.config["model_type"]
    if kind == "gte":
        return _unigram(texts, tokens or XLM_R_TOKENS)
    if kind == "qwen3":
        return _byte_level(texts, tokens or QWEN_TOKENS)
    raise SystemExit(f"No tokenizer is made for {kind!r} ({shape.name}); gte and qwen3 have one.")


def _unigram(texts: Sequence[str], size: int) -> Any:
    """A tokenizer as XLM-R has it: scored pieces, about 1.6 Chinese characters each."""
    from transformers import XLMRobertaTokenizer

    counts: Counter[str] = Counter(
        text[start : start + length]
        for text in texts
        for word in text.split()
        for text in ("▁" + word,)
        for length in (1, 2)
        for start in range(len(text) - length + 1)
    )
    counts.update(string.ascii_letters + string.digits + string.punctuation)
    single = sorted(piece for piece in counts if len(piece) == 1)
    longer = [piece for piece, count in counts.most_common() if len(piece) > 1 and count > 2]
    pieces = [*single, *longer[: size - 5 - len(single)]]
    total = sum(counts[piece] for piece in pieces)
    scored = [(piece, math.log(counts[piece] / total)) for piece in pieces]
    known = set(pieces)
    scored += [(piece, -20.0) for piece in _made_up(pieces, known, size - 5 - len(pieces))]
    special = [(token, 0.0) for token in XLM_R_SPECIAL]
    return XLMRobertaTokenizer(vocab=[*special, *scored, ("<mask>", 0.0)], model_max_length=8192)


def _byte_level(texts: Sequence[str], size: int) -> Any:
    """A tokenizer as Qwen has it: pairs of bytes, learnt from the texts, then made up."""
    from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
    from transformers import Qwen2Tokenizer
    from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

    backend = Tokenizer(models.BPE())
    backend.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(PRETOKENIZE_REGEX), "isolated")
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    backend.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=min(size, 20_000),
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            max_token_length=7,  # two Chinese characters: the trainer merges while the sum is less
            show_progress=False,
        ),
    )
    model = json.loads(backend.to_str())["model"]
    merges = [tuple(pair) for pair in model["merges"]]
    vocabulary = dict(model["vocab"])
    known = set(vocabulary)
    pairs: list[tuple[str, str]] = []
    for piece in _made_up(sorted(known), known, size - len(vocabulary), pairs):
        vocabulary[piece] = len(vocabulary)
    tokenizer = Qwen2Tokenizer(vocab=vocabulary, merges=[*merges, *pairs], model_max_length=131_072)
    tokenizer.add_tokens([AddedToken(token, special=True) for token in QWEN_SPECIAL])
    tokenizer.eos_token = "<|im_end|>"
    return tokenizer


def _made_up(
    pieces: Sequence[str], known: set[str], number: int, pairs: list[tuple[str, str]] | None = None
) -> Iterator[str]:
    """So many pieces that are not known, each two known ones put together."""
    drawn = random.Random(SEED)
    while number > 0:
        left, right = drawn.choice(pieces), drawn.choice(pieces)
        piece = left + right
        if piece in known or "▁" in right:
            continue
        known.add(piece)
        if pairs is not None:
            pairs.append((left, right))
        number -= 1
        yield piece


def _write_weights(shape: Shape, folder: Path, dtype: str, seed: int, shard_bytes: int, device: str) -> None:
    """Configuration and weights, drawn and written shard by shard."""
    import torch
    from safetensors.torch import save_file

    from mar_st.planning.backbones import meta_model

    model = meta_model(shape)
    kind: Any = getattr(torch, dtype)
    model.config.architectures = [type(model).__name__]
    model.config.dtype = kind
    model.config.save_pretrained(folder)
    deviation = getattr(model.config, "initializer_range", 0.02)
    generator = torch.Generator(device).manual_seed(seed)
    shards: list[list[tuple[str, Any]]] = [[]]
    held = 0
    for name, tensor in model.state_dict().items():
        size = tensor.numel() * kind.itemsize
        if shards[-1] and held + size > shard_bytes:
            shards.append([])
            held = 0
        shards[-1].append((name, tensor.shape))
        held += size
    where, total = {}, 0
    for number, shard in enumerate(shards, 1):
        file = "model.safetensors"
        if len(shards) > 1:
            file = f"model-{number:05}-of-{len(shards):05}.safetensors"
        tensors = {name: _draw(name, tuple(size), kind, deviation, generator) for name, size in shard}
        save_file(tensors, str(folder / file), metadata={"format": "pt"})
        total += sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
        where |= dict.fromkeys(tensors, file)
        del tensors
    if len(shards) > 1:
        index = {"metadata": {"total_size": total}, "weight_map": where}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")


def _draw(name: str, size: tuple[int, ...], dtype: Any, deviation: float, generator: Any) -> Any:
    """A tensor as fresh weights have it: norms one, biases zero, matrices normal."""
    import torch

    if len(size) == 1:
        return torch.zeros(size, dtype=dtype) if name.endswith("bias") else torch.ones(size, dtype=dtype)
    drawn = torch.empty(size, dtype=dtype, device=generator.device)
    return drawn.normal_(0, deviation, generator=generator).cpu()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", help="such as Qwen/Qwen3-4B")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    print(
        write_backbone(
            options.name, options.folder, dtype=options.dtype, seed=options.seed, tiny=options.tiny
        )
    )


if __name__ == "__main__":
    main()
