"""Stage II: both encoders are fine-tuned together, or one of them towards the other, frozen one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mar_st.errors import MarError
from mar_st.losses import AsymInfoNCELoss
from mar_st.modules import is_truncation
from mar_st.stages.contrastive import (
    add_stage_lora,
    column_prompts,
    merge_stage_lora,
    stage_columns,
)
from mar_st.stages.deepspeed import check_deepspeed
from mar_st.stages.trainer import Settings, fit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mar_st.data import Source
    from mar_st.model import MAR
    from mar_st.schema import JointStage

#: Parameters of the document route, as a loss names them.
DOCUMENT_PARAMETERS = r"^model\.(module\.)?\d+\.sub_modules\.document\."


class JointError(MarError):
    """A joint stage with nothing to train on some of its data."""


def train_joint(
    model: MAR,
    sources: Sequence[Source],
    stage: JointStage,
    settings: Settings,
    prompts: Mapping[str, str],
) -> None:
    """Train the routes in place with Asym-InfoNCE over hard and in-batch negatives.

    The document encoder is trained through LoRA where `stage.lora_r` is given (the adapter is merged at the
    end), in full otherwise. With `stage.freeze` one side keeps its weights: it has neither gradients nor
    optimiser state, and no dropout. With `stage.dims` the loss is the mean over Matryoshka prefixes of the
    shared space. Both columns of symmetric data go through the query encoder.

    Args:
        model: An aligned MAR.
        sources: Data settings with their triples.
        stage: Hyperparameters.
        settings: Run folder, seed, precision.
        prompts: Prompt texts by name: that of the data entry stands before queries (both columns of symmetric
            data), the one called `document`, if any, before documents.

    Raises:
        JointError: The queries are frozen and some data have nothing but queries.
        LoRAError: The document encoder lacks one of `stage.lora_targets`.
        ArgumentsError: DeepSpeed is asked for and cannot do the stage.
    """
    check_deepspeed(stage, settings)
    if stage.freeze == "query":
        symmetric = [source.entry.name for source in sources if source.entry.symmetric]
        if symmetric:
            raise JointError(
                f"stage {stage.name}: both columns of the symmetric data {', '.join(symmetric)} go through "
                "the query encoder, which is frozen. Leave them out with 'data', or freeze nothing."
            )
    for route in ("query", "document"):
        for module in model.route_modules(route):
            module.requires_grad_(stage.freeze != route and not is_truncation(module))
    document: Any = model.route_modules("document")[0]
    add_stage_lora(document, stage)
    data = stage_columns(sources, stage, settings)
    mapping = {}
    for source in sources:
        other = "query" if source.entry.symmetric else "document"
        columns = data[source.entry.name].column_names
        mapping[source.entry.name] = {column: "query" if column == "query" else other for column in columns}
    loss = AsymInfoNCELoss(
        model,
        temperature=stage.temperature,
        dims=stage.dims,
        false_negative_margin=stage.false_negative_margin,
        gather_across_devices=stage.cross_device_negatives,
        mini_batch_size=stage.mini_batch_size,
    )
    rate = stage.document_learning_rate
    fit(
        model,
        data,
        loss,
        stage,
        settings,
        prompts=column_prompts(sources, data, prompts),
        router_mapping=mapping,
        learning_rate_mapping=None if rate is None else {DOCUMENT_PARAMETERS: rate},
    )
    merge_stage_lora(document, stage)
