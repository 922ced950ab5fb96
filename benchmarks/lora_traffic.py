"""Memory traffic of a LoRA training step in mixed precision: `mar train`'s layers and peft's.

    python benchmarks/lora_traffic.py                     # a layer of Qwen3-4B
    python benchmarks/lora_traffic.py --shape 0.6b

Counts the bytes that every operation of a forward and backward pass reads and writes, for one decoder layer
of the published width with checkpointing, and the floating-point operations of the matrix products. On a GPU
everything but these products and attention is limited by memory. Runs on a CPU: both are counted at two
numbers of tokens, and their difference per token is reported, so weights do not count.
"""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

SHAPES = {
    "4b": {"hidden_size": 2560, "intermediate_size": 9728, "num_attention_heads": 32},
    "0.6b": {"hidden_size": 1024, "intermediate_size": 3072, "num_attention_heads": 16},
}
TOKENS = (8, 24)
PRODUCTS = ("mm", "addmm", "bmm")
#: On a GPU, dropout is one operation, which keeps a mask of one byte per value.
DROPOUT_PARTS = ("bernoulli_", "div_")


class Traffic(TorchDispatchMode):
    """Counts bytes by operation, and floating-point operations of matrix products."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes: Counter[str] = Counter()
        self.flops = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = function(*args, **(kwargs or {}))
        name = function._schema.name.partition("::")[2]
        is_view = any(
            value.alias_info is not None and not value.alias_info.is_write
            for value in function._schema.returns
        )
        tensors = [leaf for leaf in tree_leaves((args, kwargs, output)) if isinstance(leaf, torch.Tensor)]
        if name in PRODUCTS:
            left, right = [argument for argument in args if isinstance(argument, torch.Tensor)][-2:]
            self.flops += 2 * left.numel() * right.shape[-1]
        if not is_view and name not in ("detach", "empty_like", "empty", "_unsafe_view"):
            self.bytes[name] += sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        return output


def layer(shape: str, *, own: bool, rank: int, dropout: float) -> Any:
    """An encoder of one layer with a LoRA adapter, in bf16."""
    from peft import LoraConfig
    from transformers import AutoModel, Qwen3Config

    from mar_st.model.lora_linear import replace_layers

    fields: dict[str, Any] = {
        **SHAPES[shape],
        "num_hidden_layers": 1,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 100,
        "layer_types": ["full_attention"],
        "bos_token_id": None,
        "eos_token_id": None,
    }
    model = AutoModel.from_config(Qwen3Config(**fields), dtype=torch.bfloat16)
    model.requires_grad_(False)
    model.add_adapter(
        LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=dropout, target_modules="all-linear")
    )
    if own:
        replace_layers(model)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()
    model.activation_checkpointing_enable({"use_reentrant": False})
    return model.train()


def step(model: Any, tokens: int) -> Traffic:
    """One forward and backward pass."""
    model.zero_grad()
    inputs = torch.randn(1, tokens, model.config.hidden_size, dtype=torch.bfloat16, requires_grad=True)
    with Traffic() as traffic:
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(inputs_embeds=inputs, use_cache=False).last_hidden_state.float().mean()
        loss.backward()
    return traffic


def per_token(model: Any) -> tuple[Counter[str], float]:
    """Bytes by operation, and floating-point operations, of a token."""
    few, many = (step(model, tokens) for tokens in TOKENS)
    more = TOKENS[1] - TOKENS[0]
    moved = Counter({name: (many.bytes[name] - few.bytes[name]) / more for name in many.bytes})
    dropped = sum(moved.pop(part, 0) for part in DROPOUT_PARTS)
    moved["dropout"] = dropped / 4  # the mask is written once and read once, in one byte instead of two
    return moved, (many.flops - few.flops) / more


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", choices=SHAPES, default="4b")
    parser.add_argument("--rank", type=int, default=32)
    parser.add_argument("--dropout", type=float, default=0.1)
    options = parser.parse_args()
    baseline = None
    print("| layers | kB per token and layer, without matrix products | of peft | MFLOP | largest, kB |")
    print("|---|---|---|---|---|")
    for own in (False, True):
        model = layer(options.shape, own=own, rank=options.rank, dropout=options.dropout)
        moved, flops = per_token(model)
        rest = {name: size for name, size in moved.items() if name not in PRODUCTS}
        total = sum(rest.values())
        baseline = baseline or total
        largest = sorted(rest.items(), key=lambda item: -item[1])[:5]
        text = ", ".join(f"{name} {size / 1e3:.0f}" for name, size in largest)
        label = "`mar train`" if own else "peft"
        print(f"| {label} | {total / 1e3:.0f} | {total / baseline:.2f} | {flops / 1e6:.0f} | {text} |")


if __name__ == "__main__":
    main()
