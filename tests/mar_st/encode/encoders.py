"""Symmetric encoders of several backbones, and texts for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize

from mar_st.model.encoders import load_encoder
from tests.mar_st.conftest import ALPHABET, make_config, make_tokenizer


def texts(number: int = 60, longest: int = 40) -> list[str]:
    rng = np.random.default_rng(0)
    lengths = np.minimum(rng.geometric(0.1, number), longest)
    drawn = ["".join(rng.choice(list(ALPHABET), length)) for length in lengths]
    return [*drawn, drawn[3], drawn[0]]  # some twice


def symmetric(kind: str, **options: Any) -> SentenceTransformer:
    torch.manual_seed(0)
    causal = kind in ("qwen3", "llama", "gpt_neox")
    role = "document" if causal else "query"
    modules = load_encoder((make_config(kind, 64), make_tokenizer(role)), role, **options)
    return SentenceTransformer(modules=[*modules, Normalize()], device="cpu").eval()
