"""Optional packages of this distribution."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from mar_st.errors import MarError


def load_package(name: str, *, extra: str) -> Any:
    """Import an optional package, or a module of this distribution that needs some.

    Args:
        name: The package or module.
        extra: Extra of this distribution that installs what is needed.

    Raises:
        MarError: A package is not installed, or cannot be imported.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise MarError(f"A package is missing ({error}). Install: pip install 'medteb[{extra}]'") from error
