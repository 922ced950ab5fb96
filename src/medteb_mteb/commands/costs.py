"""Printing what requests to an LLM would cost."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from medteb_mteb.curation.llm import Cost

__all__ = ["print_cost"]


def print_cost(cost: Cost, *, as_json: bool) -> None:
    """Print the estimate of a dry run.

    Args:
        cost: The estimate.
        as_json: Print JSON.
    """
    if as_json:
        typer.echo(json.dumps(asdict(cost), ensure_ascii=False, indent=2))
        return
    spent = "" if cost.budget is None else f" (spent {cost.spent:.4g} of {cost.budget:g})"
    typer.echo(
        f"{cost.prompts} prompts, {cost.known} in the journal, {cost.failed} failed before; "
        f"{cost.requests} requests, about {cost.tokens_in} tokens in, {cost.tokens_out} out, cost "
        f"{cost.cost:.4g}{spent}; nothing was "
        "sent"
    )
