"""Queries of tests that commands keep out of training data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from medteb_mteb.curation.training import HeldOut

__all__ = ["held_out", "held_out_of_training"]


def held_out(against: list[str] | None, threshold: float) -> HeldOut:
    """Return the queries of tests.

    Args:
        against: Values of the option.
        threshold: Minimum similarity of near-duplicates.

    Raises:
        BuildError: A source is unusable, or the threshold is invalid.
        FolderError: A source has unusable rows.
    """
    from medteb_mteb.curation.training import read_held_out  # lazy: numpy

    return read_held_out(against or (), threshold)


def held_out_of_training(against: list[str] | None, threshold: float) -> HeldOut:
    """Return the queries of tests that training data must not contain; print a note if none were named.

    Args:
        against: Values of the option.
        threshold: Minimum similarity of near-duplicates.

    Raises:
        BuildError: A source is unusable, or the threshold is invalid.
        FolderError: A source has unusable rows.
    """
    if not against:
        typer.echo(
            "note: no --against EDITION was given, so queries of a test may be in this training data.",
            err=True,
        )
    return held_out(against, threshold)
