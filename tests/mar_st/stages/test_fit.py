"""Attention in float32 while a stage trains in bf16 on a CPU."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch

from mar_st.stages.fit import float32_attention
from tests.mar_st.encode.encoders import symmetric, texts


@pytest.mark.parametrize("kind", ["bert", "qwen3"])
def test_attention_in_float32_changes_results_by_rounding_alone(kind):
    model = symmetric(kind)
    encoder = model[0].model
    features = model.preprocess(texts(12))

    def gradients(bf16: bool, attention: bool) -> torch.Tensor:
        model.zero_grad()
        with float32_attention([encoder]) if attention else nullcontext():
            assert (encoder.config._attn_implementation == "sdpa") != attention
            with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                vectors = model(dict(features))["sentence_embedding"]
            (vectors.float() @ vectors.float().T).triu(1).square().sum().backward()
        assert encoder.config._attn_implementation == "sdpa"
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    exact = gradients(bf16=False, attention=False)
    assert torch.equal(gradients(bf16=False, attention=True), exact)
    assert torch.cosine_similarity(gradients(bf16=True, attention=True), exact, dim=0) > 0.995
