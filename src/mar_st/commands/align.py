"""`mar align`: small query encoders for an existing document space."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from mar_st.spaces import AlignSettings


def align(settings: AlignSettings) -> dict[str, Any]:
    """Train small query encoders for an existing document space.

    The stored document vectors do not change. An interrupted run resumes where it stopped.
    """
    from mar_st.spaces import align as run  # lazy: torch

    return run(settings, say=lambda line: typer.echo(line, err=True))
