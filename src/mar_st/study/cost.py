"""Online cost of a query: parameters, operations, and milliseconds at batch size 1."""

from __future__ import annotations

import platform
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from mar_st.model.opening import route
from mar_st.modules.bigrams import count_values

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Queries whose operations are counted, and queries that are timed.
COUNTED_QUERIES, TIMED_QUERIES, WARM_UP_QUERIES = 20, 100, 10


def query_encoder(model: SentenceTransformer) -> SentenceTransformer:
    """Return the part that encodes queries: the query route of a MAR, or a whole symmetric model."""
    return SentenceTransformer(
        modules=list(route(model, "query")),
        prompts={name: text or "" for name, text in model.prompts.items()},
        device=str(model.device),
    ).eval()


def query_cost(model: SentenceTransformer, queries: Sequence[str]) -> dict[str, float]:
    """Return the size of a query encoder and its operations per query.

    Vectors of token pairs count as embeddings. Operations are the multiplications and additions of its matrix
    products, counted on real queries at batch size 1; attention is counted in full, even if a causal mask
    would save half of it.

    Args:
        model: The query encoder.
        queries: Texts of the study; the first ones are used.

    Returns:
        `parameters`, `parameters_without_embeddings`, `tokens_per_query` and `flops_per_query` (means).
    """
    texts = list(queries[:COUNTED_QUERIES])
    transformer: Any = model
    embeddings = {
        id(module.weight): module.weight.numel()
        for module in transformer.modules()
        if isinstance(module, torch.nn.Embedding | torch.nn.EmbeddingBag)
    }
    parameters = sum(parameter.numel() for parameter in model.parameters())
    flops, tokens = 0, 0
    for text in texts:
        features = model.preprocess([(model.prompts.get("query") or "") + text], task="query")
        tokens += _tokens(features)
        features = {k: v.to(model.device) if hasattr(v, "to") else v for k, v in features.items()}
        # Fused attention kernels hide their operations; plain ones are counted.
        with (
            torch.no_grad(),
            sdpa_kernel(SDPBackend.MATH),
            FlopCounterMode(display=False) as counter,
        ):
            model(features)
        flops += counter.get_total_flops()
    return {
        "parameters": parameters + count_values(model),
        "parameters_without_embeddings": parameters - sum(embeddings.values()),
        "tokens_per_query": round(tokens / len(texts), 2),
        "flops_per_query": round(flops / len(texts)),
    }


def _tokens(features: Mapping[str, Any]) -> int:
    """Return the number of tokens of one text; a static model pads nothing, and so has no attention mask."""
    mask = features.get("attention_mask")
    return int(features["input_ids"].numel() if mask is None else mask.sum())


def query_time(model: SentenceTransformer, queries: Sequence[str]) -> dict[str, Any]:
    """Measure the milliseconds from text to vector at batch size 1 here, tokenisation included.

    Args:
        model: The query encoder.
        queries: Texts of the study; repeated if there are too few.

    Returns:
        `median_ms` and `p95_ms` over `TIMED_QUERIES` queries, after a warm-up, and the device and threads.
    """
    texts = [queries[index % len(queries)] for index in range(TIMED_QUERIES)]
    for text in texts[:WARM_UP_QUERIES]:
        model.encode_query(text, show_progress_bar=False)
    seconds = []
    for text in texts:
        started = time.perf_counter()
        model.encode_query(text, show_progress_bar=False)
        seconds.append(time.perf_counter() - started)
    milliseconds = np.array(seconds) * 1000
    return {
        "median_ms": round(float(np.median(milliseconds)), 3),
        "p95_ms": round(float(np.percentile(milliseconds, 95)), 3),
        "device": _device_name(model.device),
        "threads": torch.get_num_threads(),
    }


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        info = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        names = [
            line.partition(":")[2].strip() for line in info.splitlines() if line.startswith("model name")
        ]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()
