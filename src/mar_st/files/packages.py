"""Optional packages of this distribution: imported late, or checked before work that needs them later."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from mar_st.errors import MarError


class PackageError(MarError):
    """An optional package is not installed; the message holds the pip command."""


def load_package(name: str, *, extra: str) -> Any:
    """Import an optional package.

    Args:
        name: The package or module.
        extra: Extra of this distribution that installs it.

    Raises:
        PackageError: It is not installed, or cannot be imported.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise PackageError(
            f"This needs the package {name.partition('.')[0]} ({error}). Install: pip install "
            f"'medteb[{extra}]'"
        ) from error


def need_packages(*names: str, extra: str, purpose: str) -> None:
    """Check that optional packages are installed, without importing them.

    Args:
        names: Packages as they are imported.
        extra: Extra of this distribution that installs them.
        purpose: What needs them; it starts the message.

    Raises:
        PackageError: At least one of them is missing.
    """
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        raise PackageError(
            f"{purpose} needs the package{'s' if len(missing) > 1 else ''} {', '.join(missing)}. Install: "
            f"pip install 'medteb[{extra}]'"
        )
