"""RetroMAE pre-training of the query encoder on unlabelled texts, from the masked-LM head of its backbone."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers import AutoModelForMaskedLM

from mar_st.data.columns import dataset_of, drawn_rows
from mar_st.data.sequences import distinct, distinct_texts
from mar_st.errors import MarError
from mar_st.losses.retromae import MLMHead, RetroMAELoss
from mar_st.model.native_gte import fetch, native
from mar_st.modules.layout import transformer_folder
from mar_st.stages.fit import fit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sentence_transformers import SentenceTransformer

    from mar_st.data.training import Source
    from mar_st.recipes.schema import RetroMAEStage
    from mar_st.stages.trainer import StageSettings


def train_retromae(
    model: SentenceTransformer,
    sources: Sequence[Source],
    stage: RetroMAEStage,
    settings: StageSettings,
    head: MLMHead | None = None,
) -> None:
    """Pre-train an encoder in place on every distinct text of its data, without prompts.

    The loss does not show when to stop: give the recipe an `evaluation`.

    Args:
        model: `[Transformer, Pooling, ...]` of an encoder whose texts begin with CLS.
        sources: Data settings with their texts or triples.
        stage: Hyperparameters and mask rates.
        settings: Run folder, seed, precision.
        head: Masked-LM head to start from, see `source_head`; default random weights. In both
            cases the decoder starts with random weights.

    Raises:
        MarError: There are no texts, or the head has another shape.
    """
    data = {}
    for source in sources:
        queries, documents = distinct_texts(source.triples)
        texts = distinct(source.texts, queries, documents)
        if texts:
            if source.entry.weight != 1:
                rows = drawn_rows(len(texts), source.entry.weight, random.Random(settings.seed))
                texts = texts.select(rows)
            data[source.entry.name] = dataset_of(texts.table("text"), texts.rows)
    if not data:
        raise MarError(f"stage {stage.name}: its data hold no texts.")
    loss = RetroMAELoss(
        model,
        encoder_mask=stage.encoder_mask,
        decoder_mask=stage.decoder_mask,
        bf16=settings.precision == "bf16",
        gather_across_devices=True,
    )
    if head is not None:
        loss.head.norm.eps = head.norm.eps
        try:
            loss.head.load_state_dict(head.state_dict())
        except RuntimeError as error:
            raise MarError(
                f"stage {stage.name}: the backbone's masked-LM head does not fit: {error}"
            ) from error
    fit(model, data, loss, stage, settings, no_duplicates=False)


def source_head(source: str, revision: str | None = None) -> MLMHead | None:
    """Return the masked-LM head of a folder or Hub name, with its weights.

    Reads the models of transformers' `AutoModelForMaskedLM`, such as BERT, XLM-RoBERTa, ModernBERT and `gte`.
    Folders that sentence-transformers saved hold only an encoder.

    Returns:
        The head, or `None` if the architecture has none, the files hold no weights of it, or it is not a
        linear layer, a norm and an output over the vocabulary.
    """
    try:
        with native(transformer_folder(fetch(source, revision))) as folder:
            model, info = AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True)
    except ValueError:  # no masked-LM class for this architecture
        return None
    return _extract(model, set(info["missing_keys"]))


def _extract(model: Any, missing: set[str]) -> MLMHead | None:
    inner = {id(module) for module in model.base_model.modules()}
    output = model.get_output_embeddings()
    parts = {
        name: module
        for name, module in model.named_modules()
        if id(module) not in inner and module is not output
    }
    dense = {name: module for name, module in parts.items() if isinstance(module, nn.Linear)}
    norm = {name: module for name, module in parts.items() if isinstance(module, nn.LayerNorm)}
    if output is None or len(dense) != 1 or len(norm) != 1:
        return None
    if any(key.startswith(f"{name}.") for name in (*dense, *norm) for key in missing):
        return None
    (linear,), (layer_norm,) = dense.values(), norm.values()
    head = MLMHead(linear.in_features, output.weight.shape[0])
    if linear.weight.shape != head.dense.weight.shape:
        return None
    head.norm.eps = layer_norm.eps
    for own, source in ((head.dense, linear), (head.norm, layer_norm)):
        own.weight.data.copy_(source.weight.data)
        bias = getattr(source, "bias", None)  # ModernBERT has none
        own.bias.data.copy_(torch.zeros_like(own.bias) if bias is None else bias.data)
    if output.bias is not None:
        head.bias.data.copy_(output.bias.data)
    return head
