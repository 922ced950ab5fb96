"""Independent initialisation: one encoder trained symmetrically with InfoNCE.

Source: the MAR paper's section on initialisation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss

from mar_st.losses import AsymInfoNCELoss
from mar_st.stages.trainer import Settings, fit, read_columns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sentence_transformers import SentenceTransformer
    from torch import nn

    from mar_st.data import Source
    from mar_st.schema import ContrastiveStage


def train_contrastive(
    model: SentenceTransformer,
    sources: Sequence[Source],
    stage: ContrastiveStage,
    settings: Settings,
    prompts: Mapping[str, str],
) -> None:
    """Train one encoder in place, queries and documents through the same weights.

    With `stage.dims` the loss is the mean over Matryoshka prefixes, each renormalised:
    `L = (1/|M|) * sum_m InfoNCE(first m dimensions)`.

    Args:
        model: A symmetric model; its vectors are normalised.
        sources: Data settings with their triples.
        stage: Hyperparameters.
        settings: Run folder, seed, precision.
        prompts: Prompt texts by name; put before queries only (both columns of symmetric data).
    """
    data = {source.entry.name: read_columns(source, settings.seed) for source in sources}
    loss: nn.Module = AsymInfoNCELoss(
        model, temperature=stage.temperature, learnable_temperature=stage.learnable_temperature
    )
    if stage.dims:
        weight = 1 / len(stage.dims)
        loss = MatryoshkaLoss(model, loss, list(stage.dims), [weight] * len(stage.dims))
    fit(model, data, loss, stage, settings, prompts=column_prompts(sources, prompts))


def column_prompts(sources: Sequence[Source], prompts: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Prompt of every column, by data name.

    It stands before the query alone, or before all columns of symmetric data.
    """
    result = {}
    for source in sources:
        entry = source.entry
        text = prompts.get(entry.prompt, "")
        names = ["query", "positive", *(f"negative_{index + 1}" for index in range(entry.negatives))]
        result[entry.name] = dict.fromkeys(names if entry.symmetric else ["query"], text) if text else {}
    return result
