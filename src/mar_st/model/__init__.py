"""Encoders and the models made of them: loading, saving, routes, identities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mar_st.model.mar import MAR

__all__ = ["MAR"]


def __getattr__(name: str) -> Any:
    if name != "MAR":
        raise AttributeError(f"module 'mar_st.model' has no attribute {name!r}")
    from mar_st.model.mar import MAR  # lazy: torch

    return MAR
