"""Device memory and disk space that a stage needs, in bytes.

On every device:

- weights: `parameters * bytes`, float32 if all of an encoder is trained, the published dtype if it is frozen
  or the base of a LoRA adapter (the adapter is float32);
- optimizer: `8 * trained` (two AdamW moments), gradients: `4 * trained`;
- activations: a dry run of the encoder, see `planning.costs.pass_memory`. Without GradCache all columns are
  alive at once and gradients appear as activations are freed; with it one mini-batch is alive beside all
  gradients. In a step of several passes one pass is alive beside all gradients;
- loss: scores of some rows at a time (`mar_st.losses.in_batch.MAX_SCORES`, Stage I: of all) with their
  soft-max and gradients, and the vectors of the batch with theirs, see `_loss`;
- setup: weights of both encoders and a pass of the teacher over 64 texts, before the first step;
- peak = weights + optimizer + max(gradients, activations + loss), gradients + max(activations, loss) under
  GradCache, gradients + activations + loss in several passes; or setup.

Under DeepSpeed with bf16 weights are bfloat16 and the optimizer keeps a float32 copy of trained parameters;
from ZeRO 1 on the devices share the optimizer's part, from ZeRO 2 on the gradients.

CUDA's own context (about 0.5 GB) and the fragmentation of its allocator are additional.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from mar_st.losses.in_batch import MAX_SCORES
from mar_st.losses.retromae import MAX_TARGETS
from mar_st.planning.backbones import Shape, count
from mar_st.planning.costs import DTYPE_BYTES, Training, lora_parameters, pass_memory
from mar_st.planning.launch import Launch, pass_sizes
from mar_st.recipes.schema import AlignStage, DistillStage, JointStage, RetroMAEStage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mar_st.planning.workload import Column
    from mar_st.recipes.schema import Side, Stage

#: Documents per batch while the frozen encoder's vectors are computed.
TEACHER_BATCH = 64

#: Copies of the scores that are alive at once, and of the batch's vectors (measured, see the tests):
#: of InfoNCE, of distillation (the teacher's scores as well), of Stage I.
COPIES = {"contrastive": (3.0, 5.0), "joint": (3.0, 5.0), "distill": (7.0, 6.0), "align": (3.0, 2.25)}


def trained_parameters(shape: Shape, training: Training) -> int:
    """Return the number of parameters of an encoder that a stage trains."""
    if training.mode == "frozen":
        return 0
    if training.mode == "lora":
        return lora_parameters(shape, training.lora_r, training.lora_targets)
    return count(shape).total


def weight_bytes(shape: Shape, training: Training) -> int:
    """Return the bytes of an encoder's weights, of its adapter and of its vectors of token pairs."""
    adapter = 4 * trained_parameters(shape, training) if training.mode == "lora" else 0
    paired = 2 * shape.pairs * shape.width  # a vector for each of both tokens
    return (count(shape).total + paired) * DTYPE_BYTES[training.dtype] + adapter


def retromae_parameters(shape: Shape, max_length: int) -> int:
    """Return the number of parameters of RetroMAE's decoder and head.

    The decoder has `12 * width^2`, biases, norms and positions; the head has `width^2`, a norm and biases.
    The head's output matrix is the token embeddings.
    """
    width = shape.width
    return 13 * width**2 + (16 + max_length) * width + int(shape.config["vocab_size"])


def _retromae_bytes(shape: Shape, stage: RetroMAEStage, rows: float, whole: float, length: float) -> float:
    """Return the bytes of RetroMAE's logits and masks.

    A target's logits take 8 bytes a word of the vocabulary while they are turned into a loss or a gradient
    (float32, twice), 4 until then, and 2 under autocast; every token is a target of the decoder, the masked
    ones also of the encoder. Of more than `MAX_TARGETS`, those of `MAX_TARGETS` are held at a time. Row
    masks are drawn from up to 256 patterns per text, for all texts of the step.

    Args:
        shape: The encoder.
        stage: The stage.
        rows: Texts per pass.
        whole: Texts per step.
        length: Tokens per text.
    """
    tokens, vocabulary = rows * length, int(shape.config["vocab_size"])
    masked = tokens * stage.encoder_mask
    kept = masked if masked <= MAX_TARGETS else 0.0  # the encoder's logits, until the backward pass
    logits = vocabulary * (10 * min(tokens, MAX_TARGETS) + 4 * kept)
    masks = length * (whole * (5 * min(256, length) + length) + 2 * rows * length)
    return logits + masks


def stage_memory(
    stage: Stage,
    sides: Mapping[Side, tuple[Shape, Training]],
    columns: Sequence[Sequence[Column]],
    *,
    launch: Launch,
    dim: int,
    max_length: int = 512,
) -> dict[str, float]:
    """Return bytes on each device: weights, optimizer, gradients, activations, loss, setup, peak.

    Args:
        stage: The stage.
        sides: Encoders that take part, and the training settings of each.
        columns: Texts of an optimiser step, for each data entry; the largest one counts.
        launch: Number of devices and DeepSpeed settings.
        dim: Width of the vectors.
        max_length: Maximum number of tokens per text, on the query side.
    """
    # The teacher of a distillation leaves the device once its vectors are computed.
    resident = [
        parts
        for parts in sides.values()
        if not (isinstance(stage, DistillStage) and parts[1].mode == "frozen")
    ]
    weights = float(sum(weight_bytes(*parts) for parts in resident))
    trained = sum(trained_parameters(*side) for side in sides.values())
    parameters = sum(count(shape).total for shape, _ in resident) + sum(
        trained_parameters(*parts) for parts in resident if parts[1].mode == "lora"
    )
    if isinstance(stage, RetroMAEStage):
        extra = retromae_parameters(sides["query"][0], max_length)
        weights, trained, parameters = weights + 4 * extra, trained + extra, parameters + extra
    gradients, moments = 4.0 * trained, 8.0 * trained
    zero, world = launch.zero, launch.world
    if zero is not None:
        if any(training.bf16 for _, training in sides.values()):
            weights = 2.0 * parameters
        moments = 12.0 * trained / (world if zero else 1)
        gradients /= world if zero > 1 else 1
    activations = max(_activations(stage, sides, part, world) for part in columns)
    loss = max(_loss(stage, part, world, dim) for part in columns)
    setup = 0.0
    reads = any(column.read for part in columns for column in part)
    if reads or isinstance(stage, AlignStage | DistillStage):
        longest = math.ceil(max(column.length for part in columns for column in part))
        setup = float(sum(weight_bytes(*parts) for parts in sides.values()))
        for shape, training in sides.values():
            if training.mode == "frozen":
                setup += pass_memory(shape, TEACHER_BATCH, longest, training)
    cached = any(training.gradcache for _, training in sides.values())
    held = max(activations, loss) if cached else activations + loss
    several = cached or len(pass_sizes(stage, stage.batch_size // world)) > 1
    alive = gradients + held if several else max(gradients, held)
    return {
        "weights": weights,
        "optimizer": moments,
        "gradients": gradients,
        "activations": activations,
        "loss": loss,
        "setup": setup,
        "peak": max(weights + moments + alive, setup),
    }


def _activations(
    stage: Stage, sides: Mapping[Side, tuple[Shape, Training]], columns: Sequence[Column], world: int
) -> float:
    sizes = []
    passes = pass_sizes(stage, stage.batch_size // world)
    share = max(passes) / sum(passes) / world
    for side, (shape, training) in sides.items():
        mine = [column for column in columns if column.side == side and not column.read]
        if not mine:
            continue
        longest = math.ceil(max(column.length for column in mine))
        most = math.ceil(max(column.rows for column in mine) * share)
        if training.mode == "frozen":
            rows = min(TEACHER_BATCH, most)
        elif training.gradcache:
            rows = min(stage.mini_batch_size or most, most)
            if stage.mini_batch_tokens is not None:
                rows = min(rows, max(1, stage.mini_batch_tokens // longest))
        else:
            rows = math.ceil(sum(column.rows * column.length for column in mine) / longest * share)
        if isinstance(stage, RetroMAEStage):  # its decoder is one more layer
            shape = shape.with_layers(shape.layers + 1)
        value = float(pass_memory(shape, max(rows, 1), longest, training))
        if isinstance(stage, RetroMAEStage):
            value += _retromae_bytes(shape, stage, rows, sum(passes), longest)
        if training.mode == "full":
            # Gradient of the token embeddings, twice if one pass adds to that of another.
            again = len(mine) > 1 or training.gradcache or len(passes) > 1
            value += 4.0 * count(shape).embeddings * (2 if again else 1)
        sizes.append(value)
    cached = any(training.gradcache for _, training in sides.values())
    return max(sizes) if cached else sum(sizes)


def _loss(stage: Stage, columns: Sequence[Column], world: int, dim: int) -> float:
    """Return the bytes of scores and vectors, float32, each in the number of copies given by `COPIES`.

    A learnt temperature, ranking in both directions and a margin each keep one more copy of the scores.
    """
    if isinstance(stage, RetroMAEStage):
        return 0.0
    passes = pass_sizes(stage, stage.batch_size // world)
    rows = max(passes)
    gathered = world if getattr(stage, "cross_device_negatives", True) else 1
    kind = "distill" if isinstance(stage, JointStage) and stage.kl_weight else stage.stage
    of_scores, of_vectors = COPIES[kind]
    if isinstance(stage, AlignStage):
        square = rows * rows * gathered if stage.contrastive_weight else 0
        return 4 * (of_scores * square + of_vectors * 2 * rows * dim)
    texts = sum(column.rows for column in columns) / stage.batch_size * rows * gathered
    documents = texts - rows * gathered
    scores = min(rows * documents, max(MAX_SCORES, documents))
    for name in ("learnable_temperature", "both_directions", "false_negative_margin"):
        of_scores += getattr(stage, name, None) not in (None, False)
    return 4 * (of_scores * scores + of_vectors * texts * dim)


def stage_disk(
    stage: Stage, sides: Mapping[Side, tuple[Shape, Training]], *, texts: float, dim: int
) -> dict[str, float]:
    """Return bytes on disk: model folder, one checkpoint while it trains, vectors of the frozen encoder.

    Args:
        stage: The stage.
        sides: Encoders that take part, and the training settings of each.
        texts: Number of texts that a frozen encoder encodes.
        dim: Width of these vectors, float32.
    """
    trained = sum(trained_parameters(*side) for side in sides.values())
    both = isinstance(stage, AlignStage | JointStage)
    saved = [parts for parts in sides.values() if both or parts[1].mode != "frozen"]
    disk = {
        "model": float(sum(weight_bytes(*parts) for parts in saved)),
        "checkpoint": 12.0 * trained,
    }
    if texts:
        disk["teacher"] = 4.0 * texts * dim
    return disk
