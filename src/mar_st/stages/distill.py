"""Score distillation: a symmetric model learns the scores of another one (RocketQAv2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mar_st.losses import ScoreDistillLoss
from mar_st.stages.contrastive import column_prompts, stage_columns
from mar_st.stages.teaching import kl_scope, taught, teacher_temperature
from mar_st.stages.trainer import fit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sentence_transformers import CrossEncoder, SentenceTransformer

    from mar_st.data import Source
    from mar_st.recipes.schema import DistillStage
    from mar_st.stages.settings import StageSettings


def train_distill(
    student: SentenceTransformer,
    teacher: SentenceTransformer | CrossEncoder | None,
    sources: Sequence[Source],
    stage: DistillStage,
    settings: StageSettings,
    prompts: Mapping[str, str],
) -> None:
    """Train the student in place on labelled triples and on the teacher's scores of them.

    The teacher's vectors or scores are computed once, before the first step, and kept in a store beside the
    run folder (or in `$MAR_STORE`), so a step runs only the student; widths may differ. A bi-encoder's score
    is its own similarity, cosine or dot product, of texts with its own prompts; a cross-encoder's is its
    logit.

    Args:
        student: A symmetric model.
        teacher: A symmetric model of any width or a cross-encoder; moved to the CPU when it is no longer
            needed.
        sources: Data settings with their triples.
        stage: Hyperparameters and loss weights.
        settings: Run folder, seed, precision.
        prompts: Prompt texts by name, for the student, as in `train_contrastive`.

    Raises:
        DistillError: There is no teacher, or its similarity is neither cosine nor dot product.
        LaunchError: The devices or the DeepSpeed configuration do not support the stage.
    """
    data = stage_columns(sources, stage, settings)
    of_columns = column_prompts(sources, data, prompts)
    labelled = taught(data, teacher, sources, stage, settings)
    if teacher is not None:
        teacher.to("cpu")
    loss = ScoreDistillLoss(
        student,
        temperature=stage.temperature,
        teacher_temperature=teacher_temperature(stage),
        kl_weight=stage.kl_weight,
        contrastive_weight=stage.contrastive_weight,
        kl_scope=kl_scope(stage, data),
        false_negative_margin=stage.false_negative_margin,
        gather_across_devices=stage.cross_device_negatives,
        mini_batch_size=stage.mini_batch_size,
        mini_batch_tokens=stage.mini_batch_tokens,
    )
    fit(student, labelled, loss, stage, settings, prompts=of_columns)
