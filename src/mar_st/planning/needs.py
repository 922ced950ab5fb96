"""Needs of a recipe and of each of its stages, the result of `mar plan`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["Plan", "StagePlan"]


@dataclass
class StagePlan:
    """Needs of one stage; bytes and operations are per device, steps and tokens of the whole run.

    If a stage does not fit, `changes` are settings for `--set` with which it fits, see `planning.fit`; empty
    if nothing helps.
    """

    name: str
    kind: str
    steps: int | None
    examples: float | None
    tokens_per_step: float
    tokens: float | None
    parameters: dict[str, dict[str, Any]]
    flops_per_step: dict[str, float]
    setup_flops: float
    memory: dict[str, float]
    disk: dict[str, float]
    step_seconds: float | None = None
    setup_hours: float | None = None
    hours: float | None = None
    fits: bool | None = None
    changes: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass
class Plan:
    """Needs of a recipe on a device."""

    recipe: str
    device: str
    world: int
    assumption: str
    stages: list[StagePlan]
    hours: float | None
    memory: float
    disk: float

    def to_json(self) -> dict[str, Any]:
        """Return JSON-ready content."""
        return asdict(self)
