"""Independent initialisation: one encoder trained symmetrically with InfoNCE.

Source: the MAR paper's section on initialisation; BMRetriever and MedTE are trained by the same stage.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from transformers.utils import logging

from mar_st.losses import AsymInfoNCELoss
from mar_st.model.adapters import add_lora, merge_lora
from mar_st.stages.columns import read_columns
from mar_st.stages.trainer import fit
from mar_st.stages.weights import mixed_with_start

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from datasets import Dataset
    from sentence_transformers import SentenceTransformer

    from mar_st.data import Source
    from mar_st.recipes.schema import ContrastiveStage, DistillStage, JointStage
    from mar_st.stages.settings import StageSettings

logger = logging.get_logger(__name__)

#: Share of a LoRA update that may be rounded away without a warning.
MAX_LOST_SHARE = 0.01

#: Name of the prompt for documents, in training as in `encode_corpus`.
DOCUMENT_PROMPT = "document"


def train_contrastive(
    model: SentenceTransformer,
    sources: Sequence[Source],
    stage: ContrastiveStage,
    settings: StageSettings,
    prompts: Mapping[str, str],
) -> None:
    """Train one encoder in place, queries and documents through the same weights.

    With `stage.dims` the loss is the mean over Matryoshka prefixes, each renormalised if the model scores by
    cosine: `L = (1/|M|) * sum_m InfoNCE(first m dimensions)`. With `stage.lora_r` only an adapter on the
    transformer is trained, and merged into its weights at the end. With `stage.start_share` the final weights
    are those of `mixed_with_start`.

    Args:
        model: A symmetric model; scores are cosines, or dot products if that is its similarity.
        sources: Data settings with their triples.
        stage: Hyperparameters.
        settings: Run folder, seed, precision.
        prompts: Prompt texts by name: that of the data entry goes before queries (both columns of symmetric
            data), the one named `document`, if any, before documents.

    Raises:
        MarError: The transformer lacks one of `stage.lora_targets`.
        LaunchError: The devices or the DeepSpeed configuration do not support the stage.
    """
    transformer: Any = model[0]
    with mixed_with_start(model, stage.start_share):
        add_stage_lora(transformer, stage)
        data = stage_columns(sources, stage, settings)
        loss = AsymInfoNCELoss(
            model,
            temperature=stage.temperature,
            learnable_temperature=stage.learnable_temperature,
            dims=stage.dims,
            both_directions=stage.both_directions,
            false_negative_margin=stage.false_negative_margin,
            gather_across_devices=stage.cross_device_negatives,
            mini_batch_size=stage.mini_batch_size,
            mini_batch_tokens=stage.mini_batch_tokens,
        )
        fit(model, data, loss, stage, settings, prompts=column_prompts(sources, data, prompts))
        merge_stage_lora(transformer, stage)


def add_stage_lora(transformer: Any, stage: ContrastiveStage | JointStage) -> None:
    """Give an encoder the adapter that a stage asks for; without `lora_r` nothing changes."""
    if stage.lora_r is None:
        return
    add_lora(
        transformer,
        r=stage.lora_r,
        alpha=stage.lora_alpha,
        dropout=stage.lora_dropout,
        targets=stage.lora_targets,
    )


def merge_stage_lora(transformer: Any, stage: ContrastiveStage | JointStage) -> None:
    """Merge the adapter of a stage as `stage.lora_merge_dtype` asks; warn if rounding loses too much."""
    merged = merge_lora(transformer, torch.float32 if stage.lora_merge_dtype == "float32" else None)
    if merged is not None and merged.lost > MAX_LOST_SHARE:
        logger.warning_once(
            f"stage {stage.name}: storing the merged weights in {merged.dtype} rounds away "
            f"{merged.lost:.1%} of the LoRA update. 'lora_merge_dtype: float32' keeps it for the stages that "
            "follow."
        )


def stage_columns(
    sources: Sequence[Source], stage: ContrastiveStage | DistillStage | JointStage, settings: StageSettings
) -> dict[str, Dataset]:
    """Return the rows of each data entry, with the stage's number of hard negatives if it gives one.

    Raises:
        MarError: Negatives are required, but a query has none.
    """
    data = {}
    for source in sources:
        negatives = source.entry.negatives if stage.negatives is None else stage.negatives
        stage_source = replace(source, entry=source.entry.model_copy(update={"negatives": negatives}))
        data[source.entry.name] = read_columns(stage_source, settings.seed)
    return data


def column_prompts(
    sources: Sequence[Source], data: Mapping[str, Dataset], prompts: Mapping[str, str]
) -> dict[str, dict[str, str]]:
    """Return the prompt of every column, by data name.

    Queries (and all columns of symmetric data) get the prompt of the data entry, documents
    `DOCUMENT_PROMPT`.
    """
    result = {}
    for source in sources:
        entry = source.entry
        texts = {
            "query": prompts.get(entry.prompt, ""),
            "document": prompts.get(entry.prompt if entry.symmetric else DOCUMENT_PROMPT, ""),
        }
        named = {
            column: texts["query" if column == "query" else "document"]
            for column in data[entry.name].column_names
        }
        result[entry.name] = {column: text for column, text in named.items() if text}
    return result
