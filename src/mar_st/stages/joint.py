"""Stage II: both encoders are fine-tuned together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mar_st.adapters import add_lora, merge_lora
from mar_st.losses import AsymInfoNCELoss
from mar_st.modules import is_truncation
from mar_st.stages.contrastive import column_prompts
from mar_st.stages.trainer import Settings, fit, read_columns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mar_st.data import Source
    from mar_st.model import MAR
    from mar_st.schema import JointStage


def train_joint(
    model: MAR,
    sources: Sequence[Source],
    stage: JointStage,
    settings: Settings,
    prompts: Mapping[str, str],
) -> None:
    """Train both routes in place with Asym-InfoNCE over hard and in-batch negatives.

    The document encoder is trained through LoRA where `stage.lora_r` is given (the adapter is merged at the
    end), in full otherwise.

    Args:
        model: An aligned MAR.
        sources: Data settings with their triples.
        stage: Hyperparameters.
        settings: Run folder, seed, precision.
        prompts: Prompt texts by name.
    """
    document: list[Any] = list(model.route_modules("document"))
    for module in document:
        module.requires_grad_(not is_truncation(module))
    if stage.lora_r is not None:
        add_lora(document[0], r=stage.lora_r, alpha=stage.lora_alpha, dropout=stage.lora_dropout)
    data, mapping = {}, {}
    for source in sources:
        name = source.entry.name
        data[name] = read_columns(source, settings.seed)
        other = "query" if source.entry.symmetric else "document"
        mapping[name] = {
            column: "query" if column == "query" else other for column in data[name].column_names
        }
    loss = AsymInfoNCELoss(
        model, temperature=stage.temperature, false_negative_margin=stage.false_negative_margin
    )
    fit(model, data, loss, stage, settings, prompts=column_prompts(sources, prompts), router_mapping=mapping)
    merge_lora(document[0])
