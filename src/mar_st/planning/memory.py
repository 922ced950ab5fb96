"""The memory that a stage needs, before any weights are loaded.

Bytes on every device:

- weights: `parameters * bytes`, float32 if all of an encoder is trained, else the published dtype (an adapter
  is float32);
- optimizer: `8 * trained` (two AdamW moments), gradients: `4 * trained`;
- activations: a dry run of the encoder, see `mar_st.planning.costs`. Without GradCache all columns are alive
  at once; with it one mini-batch is alive beside all gradients;
- loss: the scores that are held at a time and the vectors of the batch, with their copies.

Under DeepSpeed with bf16 weights are bfloat16 and the optimizer keeps a float32 copy of trained parameters;
from ZeRO 1 on the devices share the optimizer's part, from ZeRO 2 on the gradients. CUDA's own context (about
0.5 GB) and the fragmentation of its allocator are additional.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from mar_st.losses.asym_infonce import MAX_SCORES
from mar_st.losses.retromae import MAX_TARGETS
from mar_st.planning.backbones import count
from mar_st.planning.costs import DTYPE_BYTES, Training, pass_memory, trained_parameters
from mar_st.recipes.schema import AlignStage, Recipe, RetroMAEStage, Side, Stage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mar_st.planning.backbones import Shape
    from mar_st.planning.launch import Launch

#: Texts per batch while the vectors of a frozen encoder are computed.
TEACHER_BATCH = 64


class Texts(NamedTuple):
    """Texts of one role of a data entry: how many, and their tokens on average and at most."""

    number: float | None
    mean: float = 0.0
    longest: float = 0.0


class Column(NamedTuple):
    """Texts of one side in an optimiser step, over all devices; `read`: their vectors are stored."""

    side: Side
    rows: int
    texts: Texts
    read: bool = False


def stage_memory(
    recipe: Recipe,
    launch: Launch,
    shapes: Mapping[Side, Shape],
    stage: Stage,
    trainings: Mapping[Side, Training],
    groups: Sequence[Sequence[Column]],
) -> dict[str, float]:
    """Return the bytes of a stage by purpose, and `peak`; the largest of the data entries counts.

    Args:
        recipe: The recipe.
        launch: Number of devices, and how they share the work.
        shapes: Shape of each side's encoder.
        stage: A stage of the recipe.
        trainings: How the stage trains or reads each encoder that it uses.
        groups: The columns of each data entry.
    """
    world, zero = launch.world, launch.zero
    trained = sum(trained_parameters(shapes[side], training) for side, training in trainings.items())
    weights = 0.0
    for side, training in trainings.items():
        if stage.stage == "distill" and training.mode == "frozen":
            continue  # the teacher leaves the device once its vectors are computed
        adapter = trained_parameters(shapes[side], training) if training.mode == "lora" else 0
        weights += count(shapes[side]).total * DTYPE_BYTES[training.dtype] + 4 * adapter
    if isinstance(stage, RetroMAEStage):  # its decoder of one layer, and its head
        extra = 13 * shapes["query"].width ** 2
        weights, trained = weights + 4 * extra, trained + extra
    gradients, moments = 4.0 * trained, 8.0 * trained
    if zero is not None:
        weights /= 2 if recipe.precision == "bf16" else 1
        moments = 12.0 * trained / (world if zero else 1)
        gradients /= world if zero > 1 else 1
    parts = world * stage.gradient_accumulation
    activations = max(_activations(shapes, stage, trainings, columns, parts) for columns in groups)
    loss = max(_loss(recipe, launch, stage, columns, parts) for columns in groups)
    cached = any(training.gradcache for training in trainings.values())
    if cached or stage.gradient_accumulation > 1:
        alive = gradients + (max(activations, loss) if cached else activations + loss)
    else:
        alive = max(gradients, activations + loss)
    return {
        "weights": weights,
        "optimizer": moments,
        "gradients": gradients,
        "activations": activations,
        "loss": loss,
        "peak": weights + moments + alive,
    }


def _activations(
    shapes: Mapping[Side, Shape],
    stage: Stage,
    trainings: Mapping[Side, Training],
    columns: Sequence[Column],
    parts: int,
) -> float:
    sizes = []
    for side, training in trainings.items():
        shape = shapes[side]
        mine = [column for column in columns if column.side == side and not column.read]
        if not mine:
            continue
        longest = math.ceil(max(column.texts.longest for column in mine))
        most = math.ceil(max(column.rows for column in mine) / parts)
        if training.mode == "frozen":
            rows = min(TEACHER_BATCH, most)
        elif training.gradcache:
            rows = min(stage.mini_batch_size or most, most)
            rows = min(rows, max(1, (stage.mini_batch_tokens or rows * longest) // longest))
        else:
            rows = math.ceil(sum(column.rows * column.texts.mean for column in mine) / longest / parts)
        if isinstance(stage, RetroMAEStage):  # its decoder is one more layer
            shape = shape.with_layers(shape.layers + 1)
        value = float(pass_memory(shape, max(rows, 1), longest, training))
        if isinstance(stage, RetroMAEStage):
            logits = int(shape.config["vocab_size"]) * 10 * min(rows * longest, MAX_TARGETS)
            value += logits + rows * longest * (5 * min(256, longest) + 3 * longest)
        if training.mode == "full":  # gradient of the token embeddings, twice if passes are added
            value += 4.0 * count(shape).embeddings * (2 if len(mine) > 1 or training.gradcache else 1)
        sizes.append(value)
    return max(sizes) if any(t.gradcache for t in trainings.values()) else sum(sizes)


def _loss(recipe: Recipe, launch: Launch, stage: Stage, columns: Sequence[Column], parts: int) -> float:
    """Return the bytes of scores and vectors, float32, in as many copies as are alive at once."""
    if isinstance(stage, RetroMAEStage):
        return 0.0
    rows = stage.batch_size // parts
    gathered = rows * launch.world
    if isinstance(stage, AlignStage):
        square = rows * gathered if stage.contrastive_weight else 0
        return 4 * (3.0 * square + 2.25 * 2 * rows * recipe.dim)
    texts = sum(column.rows for column in columns) / stage.batch_size * gathered
    scores = min(rows * (texts - gathered), max(MAX_SCORES, texts - gathered))
    of_scores, of_vectors = (7.0, 6.0) if getattr(stage, "kl_weight", 0.0) else (3.0, 5.0)
    for name in ("learnable_temperature", "both_directions", "false_negative_margin"):
        of_scores += getattr(stage, name, None) not in (None, False)
    return 4 * (of_scores * scores + of_vectors * texts * recipe.dim)
