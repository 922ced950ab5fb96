"""Building blocks of a MAR folder: how modules are arranged, and which of this package there are."""

from __future__ import annotations

from mar_st.modules.arrangement import arrange, route_chain
from mar_st.modules.own import OWN, module_class
from mar_st.modules.truncation import INERT, is_truncation, restore, truncation

__all__ = [
    "INERT",
    "OWN",
    "arrange",
    "is_truncation",
    "module_class",
    "restore",
    "route_chain",
    "truncation",
]
