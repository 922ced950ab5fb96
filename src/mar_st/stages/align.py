"""Stage I: the query encoder is aligned to the frozen document encoder."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import numpy as np

from mar_st.data import distinct_texts
from mar_st.losses import AlignmentLoss
from mar_st.stages.trainer import Settings, fit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from datasets import Dataset

    from mar_st.data import Source
    from mar_st.model import MAR
    from mar_st.schema import AlignStage


def train_align(
    model: MAR,
    sources: Sequence[Source],
    stage: AlignStage,
    settings: Settings,
    prompts: Mapping[str, str],
) -> None:
    """Train the query encoder in place; every query and every document is paired with itself.

    The document encoder's vectors are computed once, before the first step, and kept in the run folder.

    Args:
        model: The MAR; its document route is not changed.
        sources: Data settings with their triples.
        stage: Hyperparameters and loss weights.
        settings: Run folder, seed, precision.
        prompts: Prompt texts by name; queries are aligned with their prompt in front, documents without.
    """
    for module in model.route_modules("document"):
        module.requires_grad_(False)
    data: dict[str, Dataset] = {}
    texts_prompts: dict[str, dict[str, str]] = {}
    for source in sources:
        queries, documents = distinct_texts(source.triples)
        prompt = prompts.get(source.entry.prompt, "")
        if source.entry.symmetric:
            queries, documents = list(dict.fromkeys([*queries, *documents])), []
        for suffix, texts, text_prompt in (("queries", queries, prompt), ("documents", documents, "")):
            if texts:
                name = f"{source.entry.name}-{suffix}"
                data[name] = _with_teacher(model, texts, settings.folder / f"teacher-{name}.npy")
                texts_prompts[name] = {"text": text_prompt} if text_prompt else {}
    loss = AlignmentLoss(
        model,
        temperature=stage.temperature,
        contrastive_weight=stage.contrastive_weight,
        mse_weight=stage.mse_weight,
    )
    fit(
        model,
        data,
        loss,
        stage,
        settings,
        prompts=texts_prompts,
        router_mapping={name: {"text": "query"} for name in data},
        no_duplicates=False,  # the texts are distinct already
    )


def _with_teacher(model: MAR, texts: list[str], store: Path) -> Dataset:
    """Texts with their document-encoder vectors, `(len(texts), dim)` float32, computed once per text list."""
    from datasets import Dataset

    digest = hashlib.sha256(json.dumps(texts, ensure_ascii=False).encode()).hexdigest()
    marker = store.with_suffix(".json")
    if store.exists() and marker.exists() and json.loads(marker.read_text())["texts"] == digest:
        vectors = np.load(store)
    else:
        store.parent.mkdir(parents=True, exist_ok=True)
        vectors = model.encode_corpus(texts, batch_size=64, show_progress_bar=True).astype(np.float32)
        part = store.with_name(store.stem + ".part.npy")
        np.save(part, vectors)
        part.replace(store)
        marker.write_text(json.dumps({"texts": digest, "shape": vectors.shape}))
    return Dataset.from_dict({"text": texts, "label": list(vectors)})
