"""The model that ships with this package."""

from __future__ import annotations

from pathlib import Path

__all__ = ["NAMES", "mini_folder"]

#: What it is called.
NAMES = ("mar-mini", "medteb/mar-mini")


def mini_folder() -> Path:
    """Where the packaged model lies; it need not be there."""
    import mar_st

    return Path(str(mar_st.__file__)).parent / "models" / "mar-mini"
