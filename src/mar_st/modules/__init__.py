"""Building blocks of a MAR folder: the arrangement of modules, and the modules of this package.

Names are imported on first use; the layout of saved folders (`mar_st.modules.layout`) imports no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "OWN_MODULES": "own",
    "arrange": "arrangement",
    "is_truncation": "cut",
    "module_class": "own",
    "route_chain": "arrangement",
    "truncation": "cut",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mar_st.modules' has no attribute {name!r}")
    return getattr(import_module(f"mar_st.modules.{_HOMES[name]}"), name)
