"""Optional packages of this distribution, checked before work that would need them later."""

from __future__ import annotations

from importlib.util import find_spec

from mar_st.errors import MarError


class PackageError(MarError):
    """An optional package is not installed; the message holds the pip command."""


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
