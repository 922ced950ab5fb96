"""Training one stage of a recipe with the module for its kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mar_st.recipes.schema import AlignStage, ContrastiveStage, DistillStage, JointStage, RetroMAEStage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sentence_transformers import CrossEncoder, SentenceTransformer

    from mar_st.data import Source
    from mar_st.modules.retromae_decoder import MLMHead
    from mar_st.recipes.schema import Stage
    from mar_st.stages.settings import StageSettings


def train_stage(
    model: Any,
    sources: Sequence[Source],
    stage: Stage,
    settings: StageSettings,
    prompts: dict[str, str],
    *,
    teacher: SentenceTransformer | CrossEncoder | None,
    head: MLMHead | None,
) -> None:
    """Train a stage; only the module for its kind is imported.

    Args:
        model: The model to train in place: one encoder, or a MAR.
        sources: Data entries of the stage.
        stage: The stage.
        settings: Settings of the run.
        prompts: Prompts of the recipe by name.
        teacher: Teacher model, if a distillation or joint stage learns from one.
        head: Masked-LM head that a RetroMAE stage starts from.
    """
    match stage:
        case RetroMAEStage():
            from mar_st.stages.retromae import train_retromae  # lazy: torch

            train_retromae(model, sources, stage, settings, prompts, head=head)
        case ContrastiveStage():
            from mar_st.stages.contrastive import train_contrastive  # lazy: torch

            train_contrastive(model, sources, stage, settings, prompts)
        case DistillStage():
            from mar_st.stages.distill import train_distill  # lazy: torch

            train_distill(model, teacher, sources, stage, settings, prompts)
        case AlignStage():
            from mar_st.stages.align import train_align  # lazy: torch

            train_align(model, sources, stage, settings, prompts)
        case JointStage():
            from mar_st.stages.joint import train_joint  # lazy: torch

            train_joint(model, sources, stage, settings, prompts, teacher=teacher)
