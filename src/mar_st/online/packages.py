"""Optional packages of the online side, imported when they are needed."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from mar_st.online.protocol import EncoderError


def optional(name: str, extra: str = "online") -> Any:
    """Import a package that an extra of this distribution installs.

    OpenVINO's packages send telemetry as soon as they are imported, unless the telemetry package cannot be
    imported. A process that sees medical queries must not send any.

    Raises:
        EncoderError: The package is not installed.
    """
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    try:
        return import_module(name)
    except ImportError as error:
        raise EncoderError(
            f"This needs the package {name.partition('.')[0]} ({error}). Install it with "
            f"pip install 'medteb[{extra}]'."
        ) from error
