"""Building blocks of a MAR folder: the arrangement of modules, and the modules of this package.

Names are imported on first use; the layout of saved folders (`mar_st.modules.layout`) imports no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mar_st.modules.arrangement import arrange, route_chain
    from mar_st.modules.cut import INERT_SCALE, is_truncation, restore, truncation
    from mar_st.modules.own import OWN_MODULES, module_class

__all__ = [
    "INERT_SCALE",
    "OWN_MODULES",
    "arrange",
    "is_truncation",
    "module_class",
    "restore",
    "route_chain",
    "truncation",
]

_HOMES = {
    "INERT_SCALE": "cut",
    "OWN_MODULES": "own",
    "arrange": "arrangement",
    "is_truncation": "cut",
    "module_class": "own",
    "restore": "cut",
    "route_chain": "arrangement",
    "truncation": "cut",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mar_st.modules' has no attribute {name!r}; it offers {__all__}")
    return getattr(import_module(f"mar_st.modules.{_HOMES[name]}"), name)
