"""`mar plan`: what a recipe needs, as text or JSON."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from mar_st.planning.devices import DEVICES
from mar_st.planning.fit import keeps_gradients
from mar_st.planning.launch import DEEPSPEED_VARIABLE
from mar_st.planning.needs import Plan, StagePlan
from mar_st.planning.plan import MFU, PlanError, plan
from mar_st.rehearsal.calibrate import measure

if TYPE_CHECKING:
    from mar_st.recipes.schema import Recipe

__all__ = ["DEVICES", "MFU", "as_text", "make"]


def make(
    recipe: Recipe,
    *,
    gpu: str | None,
    world: int,
    mfu: float | None,
    calibrate: bool,
    trial: bool = False,
    note: Any = None,
) -> Plan:
    """Plan a recipe for a named device, or from measurements on this machine.

    Args:
        recipe: The recipe.
        gpu: Name of a device; default H100, or the local CPU if speed is measured without a GPU.
        world: Number of devices.
        mfu: Assumed share of the device's peak speed; not allowed with `calibrate` or `trial`.
        calibrate: Measure speed on this machine with random weights.
        trial: Measure time and memory on this machine with real steps of every stage.
        note: Receives a line per measurement.

    Raises:
        PlanError: The device is unknown, settings exclude each other, or another device is to be measured.
        LaunchError: A stage cannot be trained on this number of devices, or with DeepSpeed (`MAR_DEEPSPEED`).
        TrialError: A stage could not be tried.
    """
    if not calibrate and not trial:
        path = os.environ.get(DEEPSPEED_VARIABLE)
        return plan(
            recipe, device=gpu or "H100", world=world, deepspeed=Path(path) if path else None,
            mfu=MFU if mfu is None else mfu,
        )  # fmt: skip
    name = "--trial" if trial else "--calibrate"
    if mfu is not None or (calibrate and trial):
        other = "--mfu" if mfu is not None else "--calibrate"
        raise PlanError(f"{name} measures the speed; leave out {other}.")

    here = "cuda" if torch.cuda.is_available() else "cpu"
    if here == "cpu" and gpu not in (None, "cpu"):
        raise PlanError(f"{name} measures this machine, which has no GPU; leave out --gpu {gpu}.")
    device = gpu or ("cpu" if here == "cpu" else "H100")
    if trial:
        if world > 1:
            raise PlanError("--trial trains on one device; leave out --world.")
        from mar_st.rehearsal.trial import try_stages  # lazy: scipy

        plan(recipe, device=device)  # raises its errors before minutes are spent on trials
        return plan(recipe, device=device, trials=try_stages(recipe, say=note or (lambda _: None)))

    def measured(shape: Any, training: Any, length: int) -> Any:
        speed = measure(shape, training, length, compiled=recipe.compile and training.mode != "frozen")
        if note is not None:
            rate = f"{speed.flops / 1e12:.3f} TFLOP/s at {length} tokens"
            note(f"measured {shape.name} ({training.mode}): {rate}")
        return speed

    return plan(recipe, device=device, world=world, measure=measured)


def as_text(plan: Plan) -> str:
    """Return the plan for a terminal: a block per stage, a total."""
    lines = [f"{plan.recipe} on {plan.world} x {plan.device}: {plan.assumption}", ""]
    for stage in plan.stages:
        lines += [*_stage_lines(stage), ""]
    hours = "unknown" if plan.hours is None else _duration(plan.hours)
    lines.append(
        f"all stages: {hours} on {plan.world} x {plan.device}, {_bytes(plan.memory)} of memory per device "
        f"at most, {_bytes(plan.disk)} of disk"
    )
    return "\n".join(lines)


def _stage_lines(stage: StagePlan) -> list[str]:
    sides = ", ".join(
        f"{side} {part['mode']} ({_millions(part['trained'])} trained, {_millions(part['frozen'])} frozen, "
        f"{part['dtype']}{', ' + part['attention'] if part['attention'] else ''})"
        for side, part in stage.parameters.items()
    )
    memory = stage.memory
    parts = ", ".join(f"{name} {_bytes(memory[name])}" for name in memory if name != "peak" and memory[name])
    verdict = {None: "", True: "", False: "  DOES NOT FIT"}[stage.fits]
    flops = sum(stage.flops_per_step.values())
    lines = [
        f"{stage.name} ({stage.kind})",
        f"  parameters  {sides}",
        f"  steps       {_count(stage.steps)}, {_count(stage.examples)} examples an epoch, "
        f"{_count(stage.tokens_per_step)} tokens a step, {_count(stage.tokens)} in all",
        f"  memory      {_bytes(memory['peak'])} per device: {parts}{verdict}",
        *_fitting(stage),
        f"  operations  {flops / 1e12:.4g} TFLOP a step and device",
    ]
    if stage.step_seconds is not None:
        time = "unknown" if stage.hours is None else _duration(stage.hours)
        setup = ""
        if stage.setup_hours:
            setup = f", of which {_duration(stage.setup_hours)} for the frozen encoder's vectors"
        lines.append(f"  time        {time}, {stage.step_seconds:.3g} s a step{setup}")
    disk = ", ".join(f"{name} {_bytes(value)}" for name, value in stage.disk.items() if value)
    lines.append(f"  disk        {disk}")
    return lines + [f"  note        {note}" for note in stage.notes]


def _fitting(stage: StagePlan) -> list[str]:
    if stage.fits is not False:
        return []
    if not stage.changes:
        return ["  fits with   none of the memory settings; use larger devices, or more with ZeRO 1"]
    settings = " ".join(f"--set {change}" for change in stage.changes)
    other = "" if keeps_gradients(stage.changes) else "  (another model: an adapter is trained)"
    return [f"  fits with   {settings}{other}"]


def _count(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.0f}"


def _millions(value: float) -> str:
    return f"{value / 1e6:,.1f}M"


def _bytes(value: float) -> str:
    return f"{value / 2**30:,.2f} GiB" if value >= 2**28 else f"{value / 2**20:,.1f} MiB"


def _duration(hours: float) -> str:
    if hours >= 1:
        return f"{hours:,.1f} h"
    return f"{hours * 60:.1f} min" if hours * 60 >= 1 else f"{hours * 3600:.0f} s"
