"""Stage II: both encoders are fine-tuned together, or one of them towards the other, frozen one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mar_st.errors import MarError
from mar_st.losses import AsymInfoNCELoss, ScoreDistillLoss
from mar_st.modules import is_truncation
from mar_st.recipes.rules import reads_documents
from mar_st.stages.contrastive import (
    add_stage_lora,
    column_prompts,
    merge_stage_lora,
    stage_columns,
)
from mar_st.stages.teaching import kl_scope, taught, teacher_temperature
from mar_st.stages.trainer import fit
from mar_st.stages.weights import mixed_with_start

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from datasets import Dataset
    from sentence_transformers import CrossEncoder, SentenceTransformer

    from mar_st.data import Source
    from mar_st.model.mar import MAR
    from mar_st.recipes.schema import JointStage
    from mar_st.stages.settings import StageSettings

#: Parameters of the document route, by their names in a loss.
DOCUMENT_PARAMETERS = r"^model\.(module\.)?\d+\.sub_modules\.document\."


class JointError(MarError):
    """A joint stage with nothing to train on some of its data."""


def train_joint(
    model: MAR,
    sources: Sequence[Source],
    stage: JointStage,
    settings: StageSettings,
    prompts: Mapping[str, str],
    *,
    teacher: SentenceTransformer | CrossEncoder | None = None,
) -> None:
    """Train the routes in place with Asym-InfoNCE over hard and in-batch negatives.

    Frozen documents are encoded once, before the first step, and read from a store (HARNESS-LM, phase three),
    see `mar_st.recipes.rules.reads_documents`.

    The document encoder is trained through LoRA if `stage.lora_r` is given (the adapter is merged at the
    end), in full otherwise. With `stage.freeze` one side keeps its weights: it has no gradients, optimiser
    state or dropout. With `stage.dims` the loss is the mean over Matryoshka prefixes of the
    shared space. Both columns of symmetric data go through the query encoder. With `stage.start_share` the
    final weights are those of `mixed_with_start`.

    With `stage.kl_weight` the routes also learn a teacher's scores (listwise KL, see `ScoreDistillLoss`). The
    teacher is the document encoder at the start of the stage, for both queries and documents, at its full
    width and with the prompts of its initialisation; or another model.

    Args:
        model: An aligned MAR.
        sources: Data settings with their triples.
        stage: Hyperparameters.
        settings: Run folder, seed, precision.
        prompts: Prompt texts by name: that of the data entry goes before queries (both columns of symmetric
            data), the one named `document`, if any, before documents.
        teacher: A model to learn scores from instead of the document encoder.

    Raises:
        DistillError: The similarity of the teacher is neither cosine nor dot product.
        JointError: The query encoder is frozen and some data are symmetric.
        MarError: The document encoder lacks one of `stage.lora_targets`.
        LaunchError: The devices or the DeepSpeed configuration do not support the stage.
    """
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
    data = stage_columns(sources, stage, settings)
    mapping = {}
    for source in sources:
        other = "query" if source.entry.symmetric else "document"
        columns = data[source.entry.name].column_names
        mapping[source.entry.name] = {column: "query" if column == "query" else other for column in columns}
    of_columns = column_prompts(sources, data, prompts)
    if reads_documents(stage, [source.entry for source in sources]):
        data = taught(data, _document_teacher(model, prompts), sources, stage, settings, read=["query"])
        of_columns = {name: {"query": of["query"]} for name, of in of_columns.items() if "query" in of}
    elif stage.taught:
        data = taught(data, teacher or _document_teacher(model, prompts), sources, stage, settings)
        if teacher is not None:
            teacher.to("cpu")
    document: Any = model.route_modules("document")[0]
    rate = stage.document_learning_rate
    with mixed_with_start(model, stage.start_share):
        add_stage_lora(document, stage)  # the teacher's scores are of the encoder without it
        fit(
            model,
            data,
            _loss(model, stage, data),
            stage,
            settings,
            prompts=of_columns,
            router_mapping=mapping,
            learning_rate_mapping=None if rate is None else {DOCUMENT_PARAMETERS: rate},
        )
        merge_stage_lora(document, stage)


def _document_teacher(model: MAR, prompts: Mapping[str, str]) -> SentenceTransformer:
    """Return the document encoder at its full width, with the prompts of its initialisation."""
    teacher = model.encoder("document")
    teacher.prompts = dict(prompts)
    return teacher


def _loss(model: MAR, stage: JointStage, data: Mapping[str, Dataset]) -> AsymInfoNCELoss | ScoreDistillLoss:
    """Return the loss of a stage: Asym-InfoNCE, plus the KL if there is a teacher."""
    options: dict[str, Any] = {
        "temperature": stage.temperature,
        "dims": stage.dims,
        "both_directions": stage.both_directions,
        "false_negative_margin": stage.false_negative_margin,
        "gather_across_devices": stage.cross_device_negatives,
        "mini_batch_size": stage.mini_batch_size,
        "mini_batch_tokens": stage.mini_batch_tokens,
    }
    if not stage.taught:
        return AsymInfoNCELoss(model, **options)
    return ScoreDistillLoss(
        model,
        teacher_temperature=teacher_temperature(stage),
        kl_weight=stage.kl_weight,
        contrastive_weight=stage.contrastive_weight,
        kl_scope=kl_scope(stage, data),
        **options,
    )
