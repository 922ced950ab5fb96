"""Stages on labelled pairs and triples: contrastive, distill, and joint (Stage II).

Sources: the MAR paper's sections on initialisation and joint fine-tuning; BMRetriever and MedTE are trained
by `contrastive`; RocketQAv2 for `distill`; HARNESS-LM for a joint stage with frozen documents.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mar_st.errors import MarError
from mar_st.losses.asym_infonce import AsymInfoNCELoss
from mar_st.losses.score_distill import ScoreDistillLoss
from mar_st.model.adapters import add_lora, merge_lora
from mar_st.modules.arrangement import is_truncation
from mar_st.recipes.rules import reads_documents
from mar_st.stages.columns import column_prompts, kl_scope, stage_columns, taught
from mar_st.stages.fit import fit, mixed_with_start

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from datasets import Dataset
    from sentence_transformers import CrossEncoder, SentenceTransformer

    from mar_st.data.training import Source
    from mar_st.model.mar import MAR
    from mar_st.recipes.schema import ContrastiveStage, DistillStage, JointStage
    from mar_st.stages.trainer import StageSettings

#: Parameters of the document route, by their names in a loss.
DOCUMENT_PARAMETERS = r"^model\.(module\.)?\d+\.sub_modules\.document\."


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
    transformer is trained, and merged into its weights in float32 at the end, since 16-bit sums would lose
    a part of it. With `stage.start_share` the final weights are those of `mixed_with_start`.

    Args:
        model: A symmetric model; scores are cosines, or dot products if that is its similarity.
        sources: Data settings with their triples.
        stage: Hyperparameters.
        settings: Run folder, seed, precision.
        prompts: Prompt texts by name: that of the data entry goes before queries (both columns of symmetric
            data), the one named `document`, if any, before documents.
    """
    with mixed_with_start(model, stage.start_share), _adapted(model[0], stage):
        data = stage_columns(sources, stage, settings)
        loss = _loss(model, stage, data, learnable_temperature=stage.learnable_temperature)
        fit(model, data, loss, stage, settings, prompts=column_prompts(sources, data, prompts))


def train_distill(
    student: SentenceTransformer,
    teacher: SentenceTransformer | CrossEncoder,
    sources: Sequence[Source],
    stage: DistillStage,
    settings: StageSettings,
    prompts: Mapping[str, str],
) -> None:
    """Train the student in place on labelled triples and on the teacher's scores of them.

    The teacher's vectors or scores are computed once, before the first step, so a step runs only the student;
    widths may differ. A bi-encoder's score is its own similarity, cosine or dot product, of texts with its
    own prompts; a cross-encoder's is its logit.

    Args:
        student: A symmetric model.
        teacher: A symmetric model of any width or a cross-encoder; moved to the CPU when it is no longer
            needed.
        sources: Data settings with their triples.
        stage: Hyperparameters and loss weights.
        settings: Run folder, seed, precision.
        prompts: Prompt texts by name, for the student, as in `train_contrastive`.
    """
    data = stage_columns(sources, stage, settings)
    of_columns = column_prompts(sources, data, prompts)
    labelled = taught(data, teacher, sources, stage, settings)
    teacher.to("cpu")
    fit(student, labelled, _loss(student, stage, data), stage, settings, prompts=of_columns)


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
    state or dropout. Both columns of symmetric data go through the query encoder. `dims` and `start_share`
    are as in `train_contrastive`.

    With `stage.kl_weight` the routes also learn a teacher's scores (listwise KL, see `ScoreDistillLoss`). The
    teacher is the document encoder at the start of the stage, for both queries and documents, at its full
    width and with the prompts of its initialisation; or another model.

    Args:
        model: An aligned MAR.
        sources: Data settings with their triples.
        stage: Hyperparameters.
        settings: Run folder, seed, precision.
        prompts: Prompt texts by name, as in `train_contrastive`.
        teacher: A model to learn scores from instead of the document encoder.

    Raises:
        MarError: The query encoder is frozen and some data are symmetric.
    """
    symmetric = [source.entry.name for source in sources if source.entry.symmetric]
    if stage.freeze == "query" and symmetric:
        raise MarError(
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
    elif stage.kl_weight:
        data = taught(data, teacher or _document_teacher(model, prompts), sources, stage, settings)
        if teacher is not None:
            teacher.to("cpu")
    document: Any = model.route_modules("document")[0]
    rate = stage.document_learning_rate
    # The teacher's scores are of the encoder without an adapter.
    with mixed_with_start(model, stage.start_share), _adapted(document, stage):
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


@contextmanager
def _adapted(transformer: Any, stage: ContrastiveStage | JointStage) -> Iterator[None]:
    """Train the adapter that a stage asks for, and merge it into float32 weights at the end."""
    if stage.lora_r is None:
        yield
        return
    add_lora(transformer, r=stage.lora_r, alpha=stage.lora_alpha, dropout=stage.lora_dropout)
    yield
    transformer.model.float()
    merge_lora(transformer)


def _document_teacher(model: MAR, prompts: Mapping[str, str]) -> SentenceTransformer:
    """Return the document encoder at its full width, with the prompts of its initialisation."""
    teacher = model.encoder("document")
    teacher.prompts = dict(prompts)
    return teacher


def _loss(
    model: SentenceTransformer,
    stage: ContrastiveStage | DistillStage | JointStage,
    data: Mapping[str, Dataset],
    **options: Any,
) -> AsymInfoNCELoss | ScoreDistillLoss:
    """Return the loss of a stage: Asym-InfoNCE, plus the KL if there is a teacher."""
    options |= {
        "temperature": stage.temperature,
        "dims": getattr(stage, "dims", ()),
        "both_directions": getattr(stage, "both_directions", False),
        "false_negative_margin": stage.false_negative_margin,
        "gather_across_devices": True,
        "mini_batch_size": stage.mini_batch_size,
        "mini_batch_tokens": stage.mini_batch_tokens,
    }
    if not getattr(stage, "kl_weight", 0.0):
        return AsymInfoNCELoss(model, **options)

    return ScoreDistillLoss(
        model,
        teacher_temperature=1.0 if stage.cross_encoder is not None else None,  # type: ignore[union-attr]  # logits
        kl_weight=stage.kl_weight,  # type: ignore[union-attr]
        contrastive_weight=stage.contrastive_weight,  # type: ignore[union-attr]
        kl_scope=kl_scope(stage, data),  # type: ignore[arg-type]
        **options,
    )
