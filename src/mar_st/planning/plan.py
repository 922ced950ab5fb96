"""`mar train --dry-run`: steps, operations, hours and memory of a recipe, before any weights are loaded.

Hours = steps * operations per step / (devices * peak of the device * share of it that is reached, `REACHED`).

Bytes: see `mar_st.planning.memory`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from mar_st.data.rows import locate
from mar_st.data.sequences import Triples, distinct_texts
from mar_st.data.training import Source, read_source
from mar_st.errors import MarError
from mar_st.planning.backbones import POSITION_IDS_ONLY, count, recipe_shapes
from mar_st.planning.costs import (
    Training,
    forward_flops,
    trained_parameters,
    training_flops,
)
from mar_st.planning.launch import Launch
from mar_st.planning.memory import Column, Texts, stage_memory
from mar_st.recipes.rules import (
    check_widths,
    joins,
    reads_documents,
    stage_entries,
    trained_sides,
    used_sides,
)
from mar_st.recipes.schema import AlignStage, ContrastiveStage, Data, Recipe, RetroMAEStage, Side, Stage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


#: Devices: vendors' dense peaks in TFLOP/s (bf16, fp32), and memory in GiB.
DEVICES = {
    "H200": (989.0, 67.0, 141),
    "H100": (989.0, 67.0, 80),
    "A100-80GB": (312.0, 19.5, 80),
    "A100-40GB": (312.0, 19.5, 40),
    "L40S": (362.0, 91.6, 48),
    "RTX4090": (165.0, 82.6, 24),
}

#: Share of the memory that tensors may use; the rest is for CUDA's context and fragmentation.
USABLE_SHARE = 0.92

#: Share of the peak that is reached, by what is done with an encoder. Measured with a 4B encoder and texts of
#: 512 tokens on an H100: 0.2 for a LoRA step, 0.58 for encoding. Assumed for training all weights.
REACHED = {"full": 0.4, "lora": 0.2, "frozen": 0.58}

#: Texts whose lengths are measured, and characters per token: wide (Chinese) ones, others. A rule of thumb.
SAMPLE_TEXTS, WIDE_PER_TOKEN, OTHER_PER_TOKEN = 2000, 1.5, 4.0


@dataclass
class StagePlan:
    """Needs of one stage; operations and bytes are per device, steps and tokens of the whole run."""

    name: str
    kind: str
    steps: int | None
    tokens_per_step: float
    parameters: dict[str, dict[str, Any]]
    flops: dict[str, float]
    setup_flops: float
    memory: dict[str, float]
    hours: float | None = None
    fits: bool = True
    notes: list[str] = field(default_factory=list)


def plan(recipe: Recipe, gpus: str = "1xH100") -> list[StagePlan]:
    """Plan all stages of a recipe without loading weights.

    If the data of a recipe are available, rows are counted and token lengths estimated from characters; if
    they are not, rows come from `expected_rows` and every text counts as `max_length` tokens.

    Args:
        recipe: The recipe.
        gpus: Number of devices, over which a recipe's batch sizes are totals, and a name in `DEVICES`.

    Raises:
        MarError: The device or the shape of a backbone is not known, data cannot be read, or a stage cannot
            be trained, for instance because the devices cannot share its batch.
    """
    number, _, name = gpus.partition("x")
    if name not in DEVICES or not number.isdecimal() or not int(number):
        raise MarError(f"No GPUs {gpus!r}; give a number and a name, as 8xH100. Known: {', '.join(DEVICES)}.")
    bf16, fp32, memory = DEVICES[name]
    peak = 1e12 * (bf16 if recipe.precision == "bf16" else fp32)
    planner = Planner(recipe, Launch(int(number), Launch.here().deepspeed))
    plans = [planner.stage(stage) for stage in recipe.stages]
    for one in plans:
        one.fits = one.memory["peak"] <= USABLE_SHARE * memory * 2**30
        if one.steps is not None:
            step = sum(flops / REACHED[mode] for mode, flops in one.flops.items())
            one.hours = (one.steps * step + one.setup_flops / REACHED["frozen"]) / peak / 3600
    return plans


def short_of_memory(
    recipe: Recipe, launch: Launch, memory: float, stages: Iterable[Stage], sources: Iterable[Source]
) -> Iterator[str]:
    """Yield a line for each stage that needs more than the `memory` bytes of a device."""
    planner = Planner(recipe, launch, sources)
    for stage in stages:
        peak = planner.stage(stage).memory["peak"]
        if peak > USABLE_SHARE * memory:
            yield (
                f"stage {stage.name} is estimated to need {peak / 2**30:.1f} GiB on each device, which has "
                f"{memory / 2**30:.1f}. Lower mini_batch_tokens or mini_batch_size (GradCache, the same "
                "gradients), set gradient_checkpointing: true, use more devices with ZeRO 1, or train an "
                "adapter (lora_r)."
            )


def _source_here(entry: Data) -> Source | None:
    """Read an entry whose data are on this machine."""
    try:
        here = not entry.path.startswith("hub:") and locate(entry.path) is not None
    except MarError:
        here = False
    return read_source(entry, 0) if here else None


class Planner:
    """Plans the stages of one recipe; data are read once.

    Args:
        recipe: The recipe.
        launch: How it will be launched.
        sources: Data that were read before.
    """

    def __init__(self, recipe: Recipe, launch: Launch, sources: Iterable[Source] = ()) -> None:
        self.recipe, self.launch = recipe, launch
        self._sources = {source.entry.name: source for source in sources}
        self.shapes = recipe_shapes(recipe)
        widths: dict[Side, tuple[int, int]] = {}
        for side, backbone in recipe.backbones.items():
            width, projected = self.shapes[side].width, backbone.projection or self.shapes[side].width
            widths[side] = max(width, projected), projected  # a source may end in its projection
        check_widths(recipe, widths)
        self._texts: dict[str, dict[Side, Texts]] = {}
        self._rows: dict[str, tuple[float | None, float | None]] = {}
        self._missing: set[str] = set()

    def stage(self, stage: Stage) -> StagePlan:
        """Plan one stage."""
        self.launch.check(stage)
        trainings = {side: self.training(stage, side) for side in used_sides(stage)}
        groups = self._groups(stage)
        known = [rows for rows, _ in groups if rows is not None]
        total = sum(known)
        tokens = 0.0
        flops: dict[str, float] = {training.mode: 0.0 for training in trainings.values()}
        for rows, columns in groups:
            share = (rows or 0.0) / total if total else 1 / len(groups)
            for column in columns:
                if not column.read:
                    training, own = trainings[column.side], column.rows / self.launch.world
                    cost = training_flops(self.shapes[column.side], own, column.texts.mean, training)
                    flops[training.mode] += share * cost
                    tokens += share * column.rows * column.texts.mean
        if isinstance(stage, RetroMAEStage):
            flops["full"] += tokens / self.launch.world * self._retromae_flops(stage)
        notes, steps = [], stage.max_steps
        if steps is None and len(known) == len(groups):
            pools = [total] if stage.batches == "mixed" else known
            steps = math.ceil(sum(int(rows) // stage.batch_size for rows in pools) * stage.epochs)
        elif steps is None:
            notes.append("rows are not known: some data are missing and have no expected_rows")
        missing = [entry.name for entry in self.recipe.data_of(stage) if not self._read(entry)]
        if missing:
            notes.append(f"{', '.join(missing)}: not here, so every text counts as max_length tokens")
        return StagePlan(
            name=stage.name,
            kind=stage.stage,
            steps=steps,
            tokens_per_step=tokens,
            parameters={
                side: {
                    "mode": training.mode,
                    "trained": trained_parameters(self.shapes[side], training),
                    "all": count(self.shapes[side]).total,
                    "dtype": training.dtype,
                }
                for side, training in trainings.items()
            },
            flops=flops,
            setup_flops=self._setup_flops(stage, groups),
            memory=stage_memory(
                self.recipe, self.launch, self.shapes, stage, trainings, [columns for _, columns in groups]
            ),
            notes=notes,
        )

    def training(self, stage: Stage, side: Side) -> Training:
        """Return how a stage trains a side."""
        mode: Any = "full" if side in trained_sides(stage) else "frozen"
        r = None if joins(stage) and side == "query" else getattr(stage, "lora_r", None)
        if r is not None and mode == "full":
            mode = "lora"
        trains, bf16 = mode != "frozen", self.recipe.precision == "bf16"
        earlier = takewhile(lambda other: other.name != stage.name, self.recipe.stages)
        trained = any(side in trained_sides(other) for other in earlier)
        cached = stage.mini_batch_size is not None or stage.mini_batch_tokens is not None
        return Training(
            mode=mode,
            lora_r=r or 0,
            checkpointing=stage.gradient_checkpointing and trains,
            gradcache=cached and trains,
            bf16=bf16,
            # What was trained before is float32, adapters merged into it included.
            dtype="float32" if mode == "full" or not bf16 or trained else self.shapes[side].dtype,
        )

    # -- data --

    def _read(self, entry: Data) -> bool:
        """Read the numbers and lengths of an entry; return False if its data are not here."""
        if entry.name in self._texts:
            return entry.name not in self._missing
        source = self._sources.get(entry.name) or _source_here(entry)
        if source is not None:
            queries, documents = distinct_texts(source.triples)
            numbers: dict[Side, Any] = {"query": queries, "document": documents}
            if entry.role is not None:
                numbers[entry.role] = source.texts
            self._texts[entry.name] = {side: _measured(texts) for side, texts in numbers.items()}
            pairs = int(Triples.of(source.triples).positives.sum())
            self._rows[entry.name] = (len(source.triples), pairs)
            return True
        self._missing.add(entry.name)
        rows = entry.expected_rows
        rows = rows if rows is None or entry.limit is None else min(rows, entry.limit)
        self._rows[entry.name] = (rows, rows)
        per_row: dict[Side, int] = {"query": 1, "document": 1 + entry.negatives}
        if entry.role is not None:
            per_row = {"query": 0, "document": 0, entry.role: 1}
        self._texts[entry.name] = {side: Texts(n and rows and n * rows) for side, n in per_row.items()}
        return False

    def _column(
        self, stage: Stage, side: Side, entry: Data, role: Side, rows: int, *, read: bool = False
    ) -> Column:
        """Return the texts of a role of an entry that go through one side, in a step."""
        self._read(entry)
        texts, most = self._texts[entry.name][role], float(self.recipe.backbones[side].max_length)
        prompt = self.recipe.prompts.get(entry.prompt if role == "query" else "document", "")
        prefix = 0.0 if isinstance(stage, RetroMAEStage) else _tokens(prompt)
        kept = 1.0
        if self.shapes[side].config["model_type"] in POSITION_IDS_ONLY:  # hidden tokens cost nothing
            kept -= getattr(stage, "token_dropout", 0.0)
        mean, longest = (min(n + prefix, most) * kept if n else most for n in (texts.mean, texts.longest))
        return Column(side, rows, Texts(texts.number, mean, longest), read)

    def _groups(self, stage: Stage) -> list[tuple[float | None, list[Column]]]:
        """Return the rows that make batches together, and the texts of a batch."""
        groups: list[tuple[float | None, list[Column]]] = []
        batch, recipe = stage.batch_size, self.recipe
        roles: tuple[Side, ...] = ("query", "document")
        for entry in stage_entries(recipe, stage):
            self._read(entry)
            if isinstance(stage, AlignStage | RetroMAEStage):
                wanted = {"queries": "query", "documents": "document"}.get(getattr(stage, "texts", "all"))
                for role in roles:
                    number = self._texts[entry.name][role].number
                    if number == 0 or wanted not in (None, role):
                        continue
                    columns = [self._column(stage, "query", entry, role, batch)]
                    columns *= len(getattr(stage, "text_weights", (1.0,)))
                    groups.append((number and number * entry.weight, columns))
                continue
            first: Side = "query" if joins(stage) else stage.side  # type: ignore[union-attr]
            other: Side = "document" if joins(stage) and not entry.symmetric else first
            rows = self._rows[entry.name][entry.positives == "all"]
            read = reads_documents(stage, recipe.data_of(stage))
            number = batch * (1 + entry.negatives)
            columns = [
                self._column(stage, first, entry, "query", batch),
                self._column(stage, other, entry, "document", number, read=read),
            ]
            groups.append((rows and rows * entry.weight, columns))
        return groups

    # -- operations and bytes --

    def _setup_flops(self, stage: Stage, groups: list[tuple[float | None, list[Column]]]) -> float:
        """Return the operations of encoding all texts of a stage with the encoder that teaches it."""
        teacher: Side | None = None
        if isinstance(stage, AlignStage) or reads_documents(stage, self.recipe.data_of(stage)):
            teacher = "document"
        elif isinstance(stage, ContrastiveStage):
            teacher = stage.side if stage.mine is not None else None
        elif getattr(stage, "kl_weight", 0.0) and getattr(stage, "teacher", None) in self.shapes:
            teacher = stage.teacher  # type: ignore[assignment, union-attr]
        if teacher is None:
            return 0.0
        columns = [column for _, columns in groups for column in columns]
        texts = [(column.texts.number or 0.0, column.texts.mean) for column in columns]
        return sum(forward_flops(self.shapes[teacher], n / self.launch.world, mean) for n, mean in texts)

    def _retromae_flops(self, stage: RetroMAEStage) -> float:
        """Return the operations per token of RetroMAE's head and decoder of one layer, forward and backward.

        The head predicts the masked words from the encoder, and every token from the decoder.
        """
        width, vocabulary = self.shapes["query"].width, int(self.shapes["query"].config["vocab_size"])
        head = 2 * (width**2 + width * vocabulary)
        return 3 * ((1 + stage.encoder_mask) * head + 24 * width**2)


def _tokens(text: str) -> float:
    """Estimate the number of tokens of a text, without special ones, from its characters."""
    wide = sum("\u2e80" <= character <= "\uffef" for character in text)
    return wide / WIDE_PER_TOKEN + (len(text) - wide) / OTHER_PER_TOKEN


def _measured(texts: Any) -> Texts:
    """Return the number of texts, and the tokens of evenly spaced ones."""
    step = max(1, len(texts) // SAMPLE_TEXTS)
    lengths = [_tokens(texts[row]) + 2 for row in range(0, len(texts), step)]
    return Texts(len(texts), sum(lengths) / max(1, len(lengths)), max(lengths, default=0.0))
