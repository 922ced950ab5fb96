"""Fine-tuning of an embedding model on a classification task before it encodes the texts."""

from __future__ import annotations

import copy
import random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["fine_tuned"]

# The paper does not say how it fine-tunes: these are our choice.
EPOCHS, BATCH, RATE, SEED = 1, 16, 2e-5, 42


def fine_tuned(encoder: Any, texts: Sequence[str], labels: Sequence[int]) -> Any:
    """Return a copy of an encoder whose model was fine-tuned with a linear head on labelled texts.

    One epoch of cross entropy with AdamW, learning rate 2e-5, batches of 16, seed 42. The copy is in float32,
    as a step of that size is lost in half precision. The head is dropped.

    Args:
        encoder: mteb's wrapper of a sentence-transformers model.
        texts: Texts of the train split.
        labels: Labels of the texts, from 0.

    Raises:
        TypeError: The encoder has no sentence-transformers model, or one with several encoders.
    """
    import torch  # lazy: torch
    from sentence_transformers import SentenceTransformer  # lazy: sentence_transformers

    model = getattr(encoder, "model", None)
    if not isinstance(model, SentenceTransformer) or "router" in type(model[0]).__name__.lower():
        raise TypeError(
            "classifier=fine-tuned needs a sentence-transformers model with one encoder; "
            f"{type(model or encoder).__name__} is not one. Use classifier=frozen."
        )
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        tuned = copy.deepcopy(model).float().train()
        width = tuned.get_embedding_dimension() or 0
        head = torch.nn.Linear(width, max(labels) + 1, device=tuned.device)
        optimiser = torch.optim.AdamW([*tuned.parameters(), *head.parameters()], lr=RATE)
        places = list(range(len(texts)))
        shuffle = random.Random(SEED)
        for _ in range(EPOCHS):
            shuffle.shuffle(places)
            for start in range(0, len(places), BATCH):
                some = places[start : start + BATCH]
                features = tuned.preprocess([texts[place] for place in some])
                inputs = {
                    key: value.to(tuned.device) if hasattr(value, "to") else value
                    for key, value in features.items()
                }
                logits = head(tuned(inputs)["sentence_embedding"])
                wanted = torch.tensor([labels[place] for place in some], device=tuned.device)
                optimiser.zero_grad()
                torch.autograd.backward(torch.nn.functional.cross_entropy(logits, wanted))
                optimiser.step()
        tuned.eval()
    changed = copy.copy(encoder)
    changed.model = tuned
    return changed
