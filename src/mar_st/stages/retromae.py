"""RetroMAE pre-training of the query encoder on unlabelled texts."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from safetensors.torch import load_file, save_file

from mar_st.data import dataset_of, distinct, distinct_texts, drawn_rows
from mar_st.errors import MarError
from mar_st.files import finished
from mar_st.losses.retromae import RetroMAELoss
from mar_st.recipes.rules import HEAD_FILE, head_file
from mar_st.stages.trainer import fit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from sentence_transformers import SentenceTransformer
    from torch import Tensor, nn

    from mar_st.data import Source
    from mar_st.modules.retromae_decoder import MLMHead
    from mar_st.recipes.schema import RetroMAEStage
    from mar_st.stages.settings import StageSettings


def train_retromae(
    model: SentenceTransformer,
    sources: Sequence[Source],
    stage: RetroMAEStage,
    settings: StageSettings,
    prompts: Mapping[str, str],
    *,
    head: MLMHead | None = None,
) -> None:
    """Pre-train an encoder in place on every distinct text of its data.

    Head and decoder are saved as `retromae.safetensors` in the stage's folder, so later pre-training can
    start from them (`resume_head` of the stage). The loss does not show when to stop: give the recipe an
    `evaluation`.

    Args:
        model: `[Transformer, Pooling, ...]` of an encoder whose texts begin with CLS.
        sources: Data settings with their texts or triples.
        stage: Hyperparameters and mask rates.
        settings: Run folder, seed, precision.
        prompts: Not used; texts are read without prompts.
        head: Head to start from if the stage has no `resume_head`, see `model.mlm_head.source_head`; default
            random weights. In both cases the decoder starts with random weights.

    Raises:
        MarError: There are no texts, or `head` or `resume_head` is missing or has another shape.
    """
    del prompts
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
        replacement=stage.mask_replacement,
        bf16=settings.precision == "bf16",
        gather_across_devices=True,
    )
    if stage.resume_head is not None:
        _resume(loss, head_file(stage.resume_head))
    elif head is not None:
        loss.head.norm.eps = head.norm.eps
        _fill(loss.head, head.state_dict(), "The backbone's masked-LM head")
    fit(model, data, loss, stage, settings, no_duplicates=False)
    parts = {"decoder": loss.decoder, "head": loss.head}
    tensors = {
        f"{name}.{key}": value.detach().cpu().contiguous()
        for name, module in parts.items()
        for key, value in module.state_dict().items()
    }
    with finished(settings.folder / HEAD_FILE) as part:
        save_file(tensors, str(part))


def _resume(loss: RetroMAELoss, path: Path) -> None:
    tensors = load_file(path)
    for name, module in (("decoder", loss.decoder), ("head", loss.head)):
        own = {key.partition(".")[2]: value for key, value in tensors.items() if key.startswith(f"{name}.")}
        _fill(module, own, f"The {name} of {path}")


def _fill(module: nn.Module, tensors: Mapping[str, Tensor], what: str) -> None:
    expected = {key: tuple(value.shape) for key, value in module.state_dict().items()}
    shapes = {key: tuple(value.shape) for key, value in tensors.items()}
    if expected != shapes:
        raise MarError(f"{what} is of another encoder: it has the shapes {shapes}, not {expected}.")
    module.load_state_dict(dict(tensors))
