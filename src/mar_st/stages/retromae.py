"""RetroMAE pre-training of the query encoder on unlabelled texts."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from safetensors.torch import load_file, save_file

from mar_st.data import distinct_texts, drawn_share
from mar_st.errors import MarError
from mar_st.losses.retromae import RetroMAELoss
from mar_st.stages.trainer import Settings, fit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from sentence_transformers import SentenceTransformer

    from mar_st.data import Source
    from mar_st.schema import RetroMAEStage

#: Head and decoder of a finished stage, beside its model.
HEAD = "retromae.safetensors"


def train_retromae(
    model: SentenceTransformer,
    sources: Sequence[Source],
    stage: RetroMAEStage,
    settings: Settings,
    prompts: Mapping[str, str],
    *,
    resume_head: Path | None = None,
) -> None:
    """Pre-train an encoder in place on every distinct text of its data.

    Head and decoder are saved as `retromae.safetensors` in the stage's folder, so pre-training can go on
    from there. The loss does not tell when to stop: give the recipe an `evaluation`.

    Args:
        model: `[Transformer, Pooling, ...]` of an encoder whose texts begin with CLS.
        sources: Data settings with their texts or triples.
        stage: Hyperparameters and mask rates.
        settings: Run folder, seed, precision.
        prompts: Not used; texts are read bare.
        resume_head: `retromae.safetensors` of an earlier run with the same encoder.

    Raises:
        MarError: There are no texts, or `resume_head` is of another shape.
    """
    from datasets import Dataset

    del prompts
    data = {}
    for source in sources:
        queries, documents = distinct_texts(source.triples)
        texts = list(dict.fromkeys([*source.texts, *queries, *documents]))
        if texts:
            rows = drawn_share(texts, source.entry.weight, random.Random(settings.seed))
            data[source.entry.name] = Dataset.from_dict({"text": rows})
    if not data:
        raise MarError(f"stage {stage.name}: its data hold no texts.")
    loss = RetroMAELoss(
        model,
        encoder_mask=stage.encoder_mask,
        decoder_mask=stage.decoder_mask,
        bf16=settings.precision == "bf16",
    )
    if resume_head is not None:
        _load(loss, resume_head)
    fit(model, data, loss, stage, settings, no_duplicates=False)
    parts = {"decoder": loss.decoder, "head": loss.head}
    tensors = {
        f"{name}.{key}": value.detach().cpu().contiguous()
        for name, module in parts.items()
        for key, value in module.state_dict().items()
    }
    part = settings.folder / (HEAD + ".part")
    save_file(tensors, str(part))
    part.replace(settings.folder / HEAD)


def _load(loss: RetroMAELoss, path: Path) -> None:
    tensors = load_file(path)
    for name, module in (("decoder", loss.decoder), ("head", loss.head)):
        own = {key.partition(".")[2]: value for key, value in tensors.items() if key.startswith(f"{name}.")}
        expected = {key: tuple(value.shape) for key, value in module.state_dict().items()}
        found = {key: tuple(value.shape) for key, value in own.items()}
        if expected != found:
            raise MarError(
                f"{path} is of another encoder: its {name} has the shapes {found}, not {expected}."
            )
        module.load_state_dict(own)
