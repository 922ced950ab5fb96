"""Query encoders without a transformer: a table of n-gram vectors, looked up and summed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["Features", "LookupEncoder", "LookupEncoderError", "fit_lookup"]

_HOMES = {
    "Features": "mar_st.lookup.features",
    "LookupEncoder": "mar_st.lookup.module",
    "LookupEncoderError": "mar_st.lookup.features",
    "fit_lookup": "mar_st.lookup.fit",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mar_st.lookup' has no attribute {name!r}; it offers {__all__}")
    return getattr(import_module(_HOMES[name]), name)
