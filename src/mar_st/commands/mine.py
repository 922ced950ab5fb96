"""`mar mine`: hard negatives for training pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from mar_st.mining import MineSettings


def mine(settings: MineSettings) -> dict[str, Any]:
    """Mine hard negatives for training pairs.

    Vectors are kept, so an interrupted run resumes.
    """
    from mar_st.mining import mine_to  # lazy: torch

    return mine_to(settings, say=lambda line: typer.echo(line, err=True))


def shown(manifest: dict[str, Any]) -> str:
    """Return the counts of a mining as lines."""
    lines = []
    for part in ("counts", "candidates"):
        lines += [f"{number:>10,}  {name}" for name, number in manifest[part].items() if number]
        lines.append("")
    lines += [f"{value:>10.4f}  {name}" for name, value in manifest["scores"].items()]
    return "\n".join(lines).rstrip()
