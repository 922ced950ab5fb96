"""MAR: asymmetric text retrieval for sentence-transformers.

A small query encoder answers online, a large document encoder works offline; both share one vector space.
Names are imported on first use, so that `import mar_st` and `mar --help` stay cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mar_st.model import MAR
    from mar_st.recipe import load_recipe
    from mar_st.schema import Recipe

__all__ = ["MAR", "Recipe", "load_recipe"]

_HOMES = {"MAR": "mar_st.model", "Recipe": "mar_st.schema", "load_recipe": "mar_st.recipe"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mar_st' has no attribute {name!r}; it offers {', '.join(__all__)}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
