"""One optimiser step in several passes, each forward and backward.

A batch of the loader stays one optimiser step. Its rows are split into consecutive passes. If the loss of a
row depends only on that row, the gradients of the passes are weighted so that their sum is the gradient of
the whole batch. A loss whose mean is not over rows has a method `prepare`: it takes the columns of the whole
batch, makes the random draws, records the elements of the mean, and returns the columns; the losses of the
passes are then added without weights. A loss that compares the rows of a batch compares only those of a pass;
GradCache (`mini_batch_size`) keeps the gradients of the whole batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sentence_transformers.base.losses.gradcache import _create_minibatch

from mar_st.losses.columns import SPANS, without_spans
from mar_st.stages.checkpoints import ResumableTrainer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn

#: Keys of the inputs of a pass: its columns and labels; its weight; how many passes the step has.
PASS_KEY, WEIGHT_KEY, PASSES_KEY = "pass", "weight", "passes"


class AccumulatingTrainer(ResumableTrainer):
    """A trainer whose steps may be several passes.

    Args:
        sizes: Rows of each pass of this process, see `mar_st.planning.launch.pass_sizes`.
        **kwargs: Arguments of the trainer.
    """

    def __init__(self, sizes: Sequence[int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.sizes = list(sizes)

    def training_step(self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Any:
        """Run forward and backward for each pass; return the loss of the whole batch."""
        if len(self.sizes) == 1:
            return super().training_step(model, inputs, num_items_in_batch)
        inputs = self._prepare_inputs(inputs)
        name = inputs.get("dataset_name")
        loss = self.loss[name] if isinstance(self.loss, dict) and name else self.loss
        features, labels = self.collect_features(inputs)
        total: Any = 0.0
        for number, part in enumerate(split(loss, features, labels, self.sizes), 1):
            # DeepSpeed takes its step in the backward pass of the last one.
            self.accelerator.gradient_state._set_sync_gradients(number == len(self.sizes))
            named = {**part, "dataset_name": name} if name else part
            total = total + super().training_step(model, named, num_items_in_batch)
        return total

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Return the loss of a batch, or the share of a pass in it."""
        weight = inputs.get(WEIGHT_KEY, 1.0)
        loss = super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        return loss if weight == 1.0 else loss * weight

    def collect_features(self, inputs: dict[str, Any]) -> tuple[list[dict[str, Tensor]], Tensor | None]:
        """Return columns and labels of a batch, or of a pass."""
        collected: tuple[list[dict[str, Tensor]], Tensor | None]
        collected = inputs[PASS_KEY] if PASS_KEY in inputs else super().collect_features(inputs)
        return collected


def split(
    loss: Any, features: list[dict[str, Any]], labels: Tensor | None, sizes: Sequence[int]
) -> list[dict[str, Any]]:
    """Return the inputs of each pass: `PASS_KEY`, `WEIGHT_KEY` and `PASSES_KEY`.

    Args:
        loss: The loss; for its `prepare` see the module docstring.
        features: Output of the tokenizer for each column.
        labels: The label column.
        sizes: Rows of each pass.
    """
    prepare: Any = getattr(loss, "prepare", None)
    if prepare is not None:
        features = prepare(features)
    passes, start, rows = [], 0, sum(sizes)
    for size in sizes:
        end = start + size
        columns = [_rows(column, start, end) for column in features]
        own = (columns, None if labels is None else labels[start:end])
        passes.append(
            {PASS_KEY: own, WEIGHT_KEY: 1.0 if prepare is not None else size / rows, PASSES_KEY: len(sizes)}
        )
        start = end
    return passes


def _rows(column: dict[str, Any], start: int, end: int) -> dict[str, Any]:
    """Return some rows of a column, without the padding common to all of them."""
    plain, spans = without_spans(column)
    part: dict[str, Any] = _create_minibatch(plain, start, end)
    return part if spans is None else {**part, SPANS: spans[:, start:end]}
