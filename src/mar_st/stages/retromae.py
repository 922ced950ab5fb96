"""RetroMAE pre-training of the query encoder on unlabelled texts."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from mar_st.data.columns import dataset_of, drawn_rows
from mar_st.data.sequences import distinct, distinct_texts
from mar_st.errors import MarError
from mar_st.losses.retromae import RetroMAELoss
from mar_st.stages.fit import fit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sentence_transformers import SentenceTransformer

    from mar_st.data.training import Source
    from mar_st.modules.retromae_decoder import MLMHead
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
        head: Masked-LM head to start from, see `model.mlm_head.source_head`; default random weights. In both
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
