"""The table of all steps, in the order in which help and messages list them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from medteb_mteb.curation.step import Step

__all__ = ["STEPS"]

STEPS: dict[str, Step[Any]] = {step.name: step for step in ()}
