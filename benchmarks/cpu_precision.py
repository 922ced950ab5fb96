"""Training in bfloat16 on a CPU: a forward and backward pass under autocast against one in float32.

    python benchmarks/cpu_precision.py --model intfloat/multilingual-e5-small --rows 64 --tokens 96

Attention under autocast is computed in bfloat16 (torch's own) or in float32 (as `mar train` does, see
`mar_st.kernels.cpu_attention`). The set-ups take turns, so that a change of the processor's clock affects all
of them. Columns: the median of `--repeats` passes, the speed-up, and the cosine between gradients and those
in float32.
"""

from __future__ import annotations

import argparse
import statistics
import time
from contextlib import nullcontext
from typing import Any

import torch
from transformers import AutoModel

from mar_st.kernels.cpu_attention import float32_attention

#: Name -> autocast, attention in float32.
SETUPS = {
    "float32": (False, False),
    "autocast": (True, False),
    "autocast, attention in float32": (True, True),
}


def gradients(model: Any, inputs: dict[str, torch.Tensor], setup: str) -> torch.Tensor:
    """Return the gradients of one pass, `(parameters,)` float64."""
    autocast, exact = SETUPS[setup]
    model.zero_grad()
    with float32_attention([model]) if exact else nullcontext():
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            states = model(**inputs).last_hidden_state
        weights = torch.linspace(0, 1, states.shape[-1])  # the mean of squares alone is constant after a norm
        (states.float().square() * weights).mean().backward()
    grads = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    return torch.cat([grad.flatten().double() for grad in grads])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="intfloat/multilingual-e5-small")
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    model = AutoModel.from_pretrained(arguments.model, dtype=torch.float32).train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    torch.manual_seed(0)
    rows, tokens = arguments.rows, arguments.tokens
    lengths = torch.linspace(tokens * 3 // 4, tokens, rows).long()  # as in a batch of texts of similar length
    mask = (torch.arange(tokens) < lengths[:, None]).long()
    inputs = {"input_ids": torch.randint(5, 15000, (rows, tokens)), "attention_mask": mask}
    expected = gradients(model, inputs, "float32")
    cosines = {
        name: torch.cosine_similarity(gradients(model, inputs, name), expected, dim=0).item()
        for name in SETUPS
    }
    times: dict[str, list[float]] = {name: [] for name in SETUPS}
    for _ in range(arguments.repeats):
        for name, seconds in times.items():
            started = time.perf_counter()
            gradients(model, inputs, name)
            seconds.append(time.perf_counter() - started)
    base = statistics.median(times["float32"])
    print("| set-up | seconds | speed-up | cosine of the gradients |\n|---|---|---|---|")
    for name, seconds in times.items():
        median = statistics.median(seconds)
        print(f"| {name} | {median:.2f} | {base / median:.2f} | {cosines[name]:.5f} |")


if __name__ == "__main__":
    main()
