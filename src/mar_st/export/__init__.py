"""Export of the query side for online use. Names are imported on first use; some of them need torch."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["ExportError", "export"]

_HOMES = {"ExportError": "mar_st.export.graph", "export": "mar_st.export.exporting"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mar_st.export' has no attribute {name!r}; it offers {__all__}")
    return getattr(import_module(_HOMES[name]), name)
