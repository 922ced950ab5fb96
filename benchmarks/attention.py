"""Attention in bf16 on one processor: `mar_st.kernels.cpu_attention` against torch's fused attention.

    python benchmarks/attention.py --heads 12 --size 64

Batches of 512 tokens, of texts of one length. Both are called in turns; milliseconds are medians. Columns:
length, milliseconds of both, their ratio, and the error of each relative to float32.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch.nn.functional import scaled_dot_product_attention

from mar_st.kernels.cpu_attention import product_attention
from mar_st.kernels.heap import keep

TOKENS = 512


def timed(function) -> float:
    started = time.perf_counter()
    function()
    return 1000 * (time.perf_counter() - started)


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=50)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    keep()
    layer = torch.nn.Module()
    layer.is_causal = False
    print("tokens   fused ms   products ms   ratio   error of fused, of products")
    for tokens in (16, 32, 64, 128, 256, 512):
        shape = (TOKENS // tokens, tokens, args.heads, args.size)
        tensors = [torch.randn(shape).bfloat16().transpose(1, 2) for _ in range(3)]
        exact = scaled_dot_product_attention(*(tensor.float() for tensor in tensors))
        ways = {
            "fused": lambda tensors=tensors: scaled_dot_product_attention(*tensors),
            "products": lambda tensors=tensors: product_attention(layer, *tensors, None)[0].transpose(1, 2),
        }
        errors = [float((way().float() - exact).norm() / exact.norm()) for way in ways.values()]
        rounds = [[timed(way) for way in ways.values()] for _ in range(args.rounds)]
        fused, products = torch.tensor(rounds).median(dim=0).values.tolist()
        ratio = fused / products
        print(f"{tokens:6} {fused:10.2f} {products:13.2f} {ratio:7.2f}   {errors[0]:.4f}, {errors[1]:.4f}")


if __name__ == "__main__":
    main()
