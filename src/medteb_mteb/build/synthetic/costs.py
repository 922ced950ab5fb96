"""Costs of several calls in one sum."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

from medteb_mteb.build.llm import Cost

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["added"]

#: The same in every call: they are of the LLM, not of the prompts.
_OF_THE_LLM = ("spent", "budget")


def added(costs: Iterable[Cost]) -> Cost:
    """The sum of costs, of one LLM and one journal.

    Args:
        costs: One or more.
    """
    first, *rest = costs
    summed = [field.name for field in fields(Cost) if field.name not in _OF_THE_LLM]
    totals = {name: sum(getattr(cost, name) for cost in (first, *rest)) for name in summed}
    return replace(first, **totals)
