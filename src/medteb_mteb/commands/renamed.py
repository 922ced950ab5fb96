"""Errors for former forms of options: each error gives the present form."""

from __future__ import annotations

from typing import Any

__all__ = ["explain"]


def explain(error: Any) -> str | None:
    """Return the message of a usage error that is due to a former option; `None` for other errors.

    Args:
        error: click's exception.
    """
    context = getattr(error, "ctx", None)
    if context is None or context.info_name != "validate":
        return None
    # The file of `--json FILE` is an argument too many; errors of an option or argument name it.
    if context.params.get("as_json") and not hasattr(error, "option_name") and not hasattr(error, "param"):
        return (
            "'medteb validate --json' takes no file; it prints JSON: 'medteb validate EDITION --json > FILE'."
        )
    return None
