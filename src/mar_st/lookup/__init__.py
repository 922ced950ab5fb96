"""Query encoders without a transformer: a table of n-gram vectors, looked up and summed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {"Features": "features", "LookupEncoder": "module", "fit_lookup": "fit"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mar_st.lookup' has no attribute {name!r}")
    return getattr(import_module(f"mar_st.lookup.{_HOMES[name]}"), name)
