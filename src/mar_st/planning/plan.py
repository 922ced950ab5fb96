"""`mar plan`: steps, tokens, memory, operations, hours and disk of a recipe, before anything is loaded.

Operations and memory of an encoder pass are those of `mar_st.planning.costs`. Bytes are those of
`mar_st.planning.footprint`.

Hours = steps * operations per step / (devices * peak of the device * MFU), or with a measured speed, see
`mar_st.rehearsal.calibrate`; or what a trial of the stages took, see `mar_st.rehearsal.trial`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mar_st.errors import MarError
from mar_st.planning.backbones import Shape, count, side_shapes
from mar_st.planning.costs import Training, forward_flops, training_flops
from mar_st.planning.devices import DEVICES, Device
from mar_st.planning.fit import as_settings, keeps_gradients, search
from mar_st.planning.footprint import retromae_parameters, stage_disk, stage_memory, trained_parameters
from mar_st.planning.launch import Launch, LaunchError, check_launch
from mar_st.planning.modes import held_dtypes, training_of
from mar_st.planning.needs import Plan, StagePlan
from mar_st.planning.workload import Group, Workload
from mar_st.recipes.load import changed
from mar_st.recipes.rules import reads_documents
from mar_st.recipes.schema import (
    AlignStage,
    ContrastiveStage,
    DistillStage,
    JointStage,
    RetroMAEStage,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from mar_st.planning.tried import TrainingSpeed, Trial
    from mar_st.recipes.schema import Recipe, Side, Stage


class PlanError(MarError):
    """A plan that cannot be made; the message says why."""


#: Share of the peak that a training step is assumed to reach if nothing is measured.
MFU = 0.4

#: If the operations of a step take fewer seconds than this, kernel launches limit its speed.
LAUNCH_BOUND = 0.02


def plan(
    recipe: Recipe,
    *,
    device: str = "H100",
    world: int = 1,
    deepspeed: Path | None = None,
    mfu: float = MFU,
    measure: Callable[[Shape, Training, int], TrainingSpeed] | None = None,
    trials: Mapping[str, Trial] | None = None,
) -> Plan:
    """Plan all stages of a recipe without loading weights.

    Args:
        recipe: The recipe.
        device: A name in `DEVICES`.
        world: Number of devices; a recipe's batch sizes are totals over all devices.
        deepspeed: Path of a DeepSpeed configuration.
        mfu: Share of the device's peak that a step is assumed to reach.
        measure: Measures the speed instead, see `mar_st.rehearsal.calibrate.measure`.
        trials: Measurements of each stage in a trial, by name; time and memory are computed from them.

    Raises:
        PlanError: Unknown device, fewer than one of them, or a share `mfu` that is not above 0 and at most 1.
        LaunchError: A stage cannot be trained, for instance because the devices cannot share its batch.
        BackboneError: The shape of a backbone is not known.
        MarError: Data exist but cannot be read.
    """
    if device not in DEVICES:
        raise PlanError(f"No device {device!r}; known are {', '.join(DEVICES)}.")
    if world < 1:
        raise PlanError(f"A run needs at least one device; got world={world}.")
    if not 0 < mfu <= 1:
        raise PlanError(f"mfu is a share of the device's peak, above 0 and at most 1; got {mfu}.")
    launch = Launch(world, deepspeed)
    check_launch(recipe, launch)
    needs = Planner(recipe, DEVICES[device], launch, mfu, measure)
    stages = [needs.stage(stage) for stage in recipe.stages]
    for stage, recipe_stage in zip(stages, recipe.stages, strict=True):
        if trials is not None:
            needs.use_trial(stage, recipe_stage, trials[stage.name])
    hours = [stage.hours for stage in stages]
    known_hours = [value for value in hours if value is not None]
    peak = DEVICES[device].bf16 if recipe.precision == "bf16" else DEVICES[device].fp32
    if trials is not None:
        assumption = "time and memory of steps tried on this machine"
    elif measure is not None:
        assumption = "speed measured on this machine"
    elif peak is None:
        assumption = "no speed known; measure it with --calibrate"
    else:
        assumption = f"{mfu:.0%} of {peak:g} TFLOP/s per device ({recipe.precision})"
    return Plan(
        recipe=recipe.name,
        device=device,
        world=world,
        assumption=assumption,
        stages=stages,
        hours=sum(known_hours) if len(known_hours) == len(hours) else None,
        memory=max(stage.memory["peak"] for stage in stages),
        disk=sum(sum(stage.disk.values()) for stage in stages),
    )


def fitted(
    recipe: Recipe, device: Device, launch: Launch, names: Collection[str] | None = None
) -> tuple[Recipe, list[str]]:
    """Return a recipe whose stages all fit a device, and the changes, as for `--set`.

    Args:
        recipe: The recipe.
        device: The device.
        launch: How training is started.
        names: Names of the stages to plan; default all.

    Raises:
        LaunchError: A stage does not fit even with mini-batches and activation checkpointing.
        BackboneError: The shape of a backbone is not known.
        MarError: Data exist but cannot be read.
    """
    needs = Planner(recipe, device, launch)
    changes: list[str] = []
    for stage in recipe.stages:
        if names is not None and stage.name not in names:
            continue
        stage_plan = needs.stage(stage)
        if stage_plan.fits is False and not (stage_plan.changes and keeps_gradients(stage_plan.changes)):
            settings = " ".join(f"--set {change}" for change in stage_plan.changes)
            adapter = f" An adapter fits, and is another model: {settings}." if stage_plan.changes else ""
            raise LaunchError(
                f"stage {stage.name} needs {stage_plan.memory['peak'] / 2**30:.1f} GiB on each device, which "
                f"has {device.memory:.1f}, and neither mini-batches nor activation checkpointing make it fit."
                f"{adapter} Or use more devices with ZeRO 1, or larger ones."
            )
        changes += stage_plan.changes
    return (changed(recipe, changes) if changes else recipe), changes


class Planner:
    """Plans the stages of one recipe; data are read once."""

    def __init__(
        self,
        recipe: Recipe,
        device: Device,
        launch: Launch,
        mfu: float = MFU,
        measure: Callable[[Shape, Training, int], TrainingSpeed] | None = None,
    ) -> None:
        self.recipe, self.device, self.launch, self.mfu, self.measure = recipe, device, launch, mfu, measure
        self.world = world = launch.world
        self.shapes = side_shapes(recipe.query, recipe.document)
        self.held = held_dtypes(recipe, self.shapes)
        self.work = Workload(recipe, self.shapes, world)
        self._speeds: dict[tuple[Side, Training, int], TrainingSpeed] = {}
        self._groups: dict[str, Sequence[Group]] = {}

    def _held_shape(self, stage: Stage, side: Side) -> Shape:
        return replace(self.shapes[side], dtype=self.held[stage.name, side])

    # -- one stage --

    def stage(self, stage: Stage) -> StagePlan:
        """Plan one stage."""
        entries = self.recipe.data_of(stage)
        trainings = self._trainings(stage)
        groups = self._groups[stage.name] = self.work.groups(stage, entries)
        steps, notes = self.work.steps(stage, groups)
        known = [group.rows for group in groups if group.rows is not None]
        total = sum(known)
        flops = dict.fromkeys(trainings, 0.0)
        tokens = 0.0
        for group in groups:
            share = (group.rows or 0) / total if total else 1 / len(groups)
            for column in group.columns:
                if column.read:
                    continue
                shape, training = self.shapes[column.side], trainings[column.side]
                cost = training_flops(shape, column.rows / self.world, column.length, training)
                flops[column.side] += share * cost
                tokens += share * column.rows * column.mean
        if isinstance(stage, RetroMAEStage):
            flops["query"] += self._retromae_flops(stage, groups)
        seconds = self._seconds(flops, trainings, groups)
        setup = self._setup_flops(stage, groups)
        teacher = self._teacher(stage)
        setup_seconds = self._seconds_of(setup, teacher, trainings[teacher]) if teacher else 0.0
        pairs = {side: (self.shapes[side], training) for side, training in trainings.items()}
        texts = sum(number for _, _, number in self.work.texts(stage, groups)) if teacher else 0.0
        memory = self.memory(stage, groups)
        usable, change = self.device.usable, None
        fits = None if usable is None else memory["peak"] <= usable
        if usable is not None and not fits:
            change = search(stage, self.launch, lambda other: self.memory(other, groups)["peak"], usable)
        hours = None
        if steps is not None and seconds is not None and setup_seconds is not None:
            hours = (steps * seconds + setup_seconds) / 3600
        notes += self.work.notes(entries)
        if isinstance(stage, DistillStage | JointStage) and stage.taught and stage.teacher_source:
            notes.append(f"not counted: what {stage.teacher_source} says of the texts before the first step")
        if seconds is not None and seconds < LAUNCH_BOUND and self.measure is None:
            notes.append("so short a step waits for kernel launches: a lower bound; --calibrate measures")
        return StagePlan(
            name=stage.name,
            kind=stage.stage,
            steps=steps,
            examples=total if len(known) == len(groups) else None,
            tokens_per_step=tokens,
            tokens=None if steps is None else tokens * steps,
            parameters=self._parameters(stage, trainings),
            flops_per_step={str(side): value for side, value in flops.items()},
            setup_flops=setup,
            memory=memory,
            disk=stage_disk(stage, pairs, texts=texts, dim=self._teacher_width(stage)),
            step_seconds=seconds,
            setup_hours=None if setup_seconds is None else setup_seconds / 3600,
            hours=hours,
            fits=fits,
            changes=as_settings(stage, change) if change else [],
            notes=notes,
        )

    def memory(self, stage: Stage, groups: Sequence[Group]) -> dict[str, float]:
        """Return the bytes of a stage on each device, see `mar_st.planning.footprint`."""
        query = self.recipe.query
        return stage_memory(
            stage,
            {side: (self.shapes[side], training) for side, training in self._trainings(stage).items()},
            [group.columns for group in groups],
            launch=self.launch,
            dim=self.recipe.dim,
            max_length=query.max_length if query is not None else 512,
        )

    def _trainings(self, stage: Stage) -> dict[Side, Training]:
        precision = self.recipe.precision
        return {
            side: training_of(stage, side, self._held_shape(stage, side), precision)
            for side in self._sides(stage)
        }

    def use_trial(self, stage_plan: StagePlan, stage: Stage, trial: Trial) -> None:
        """Replace estimates by the measurements of a trial."""
        texts = sum(number for _, _, number in self.work.texts(stage, self._groups[stage.name]))
        stage_plan.step_seconds = trial.step
        stage_plan.setup_hours = texts * trial.teacher / 3600 if trial.teacher else 0.0
        if stage_plan.steps is not None:
            evaluation = self.recipe.evaluation
            times = 0 if evaluation is None else -(-stage_plan.steps // evaluation.every)
            stage_plan.hours = trial.seconds(stage_plan.steps, texts if trial.teacher else 0.0, times) / 3600
        other = trial.memory - stage_plan.memory["peak"]
        stage_plan.memory = {**stage_plan.memory, "other": max(0.0, other), "peak": float(trial.memory)}
        limit = self.device.memory
        stage_plan.fits = None if limit is None else trial.memory <= limit * 2**30
        stage_plan.changes = [] if stage_plan.fits else stage_plan.changes
        stage_plan.notes = [note for note in stage_plan.notes if not note.startswith("so short a step")]

    def _sides(self, stage: Stage) -> list[Side]:
        if isinstance(stage, AlignStage | JointStage):
            return ["query", "document"]
        if isinstance(stage, DistillStage) and stage.teacher in ("query", "document"):
            return [stage.side, stage.teacher]  # type: ignore[list-item]
        return [stage.side]

    # -- parameters, operations, time --

    def _parameters(self, stage: Stage, trainings: dict[Side, Training]) -> dict[str, dict[str, Any]]:
        extra = 0
        if isinstance(stage, RetroMAEStage) and self.recipe.query is not None:
            extra = retromae_parameters(self.shapes["query"], self.recipe.query.max_length)
        return {
            side: {
                "mode": training.mode,
                "trained": trained_parameters(self.shapes[side], training) + extra,
                "frozen": 0 if training.mode == "full" else count(self.shapes[side]).total,
                "dtype": training.dtype,
                "attention": getattr(self.recipe, side).attn_implementation,
            }
            for side, training in trainings.items()
        }

    def _retromae_flops(self, stage: RetroMAEStage, groups: Sequence[Group]) -> float:
        """Return the FLOP of RetroMAE's head and decoder.

        Forward: the head's `2 * (width^2 + width * vocabulary)` for the masked share of the encoder's tokens
        and for every token of the decoder, whose one layer costs `24 * width^2 + 4 * length * width` per
        token; backward twice that.
        """
        shape = self.shapes["query"]
        width, vocabulary = shape.width, int(shape.config["vocab_size"])
        head = 2 * (width**2 + width * vocabulary)
        parts = [column for group in groups for column in group.columns]
        length = sum(column.rows * column.length for column in parts) / sum(column.rows for column in parts)
        tokens = stage.batch_size / self.world * length
        per_token = (1 + stage.encoder_mask) * head + 24 * width**2 + 4 * length * width
        return 3 * tokens * per_token

    def _setup_flops(self, stage: Stage, groups: Sequence[Group]) -> float:
        """Return the FLOP of encoding all texts with the teacher, and of averaging hidden states."""
        total = 0.0
        texts, tokens = self.work.averaged(stage)
        if texts and self.recipe.query is not None:
            shape = self.shapes["document"]
            kept = self.recipe.query.layers_of_document or (0,)
            total += forward_flops(shape, texts / self.world, tokens) * kept[0] / shape.layers
        teacher = self._teacher(stage)
        if teacher is None:
            return total
        for entry, of_query, number in self.work.texts(stage, groups):
            bare = isinstance(stage, AlignStage) and of_query and stage.teacher_prompt == "document"
            column = self.work.column(teacher, entry, of_query, 1, stage, bare=bare)
            total += forward_flops(self.shapes[teacher], number / self.world, column.mean)
        return total

    def _teacher(self, stage: Stage) -> Side | None:
        """Return the side whose vectors are computed before the first step."""
        if isinstance(stage, AlignStage) or reads_documents(stage, self.recipe.data_of(stage)):
            return "document"
        if isinstance(stage, DistillStage | JointStage) and stage.taught and stage.teacher in self.shapes:
            return stage.teacher
        if isinstance(stage, ContrastiveStage) and stage.mine is not None:
            return stage.side
        return None

    def _teacher_width(self, stage: Stage) -> int:
        """Return the width of the teacher's stored vectors: the shared space, or all of the teacher's."""
        teacher = self._teacher(stage)
        if teacher is None or isinstance(stage, AlignStage):
            return self.recipe.dim
        return self.shapes[teacher].width

    def _seconds(
        self,
        flops: dict[Side, float],
        trainings: dict[Side, Training],
        groups: Sequence[Group],
    ) -> float | None:
        total = 0.0
        for side, value in flops.items():
            lengths = [c.length for group in groups for c in group.columns if c.side == side]
            if not lengths:
                continue
            seconds = self._seconds_of(value, side, trainings[side], max(lengths))
            if seconds is None:
                return None
            total += seconds
        return total

    def _seconds_of(
        self, flops: float, side: Side, training: Training, length: float | None = None
    ) -> float | None:
        if self.measure is not None:
            at = max(8, round(length or getattr(self.recipe, side).max_length))
            key = (side, training, at)
            if key not in self._speeds:
                self._speeds[key] = self.measure(self.shapes[side], training, at)
            speed = self._speeds[key]
            return flops / speed.flops + trained_parameters(self.shapes[side], training) * speed.optimizer
        peak = self.device.bf16 if training.bf16 else self.device.fp32
        return None if peak is None else flops / (peak * 1e12 * self.mfu)
