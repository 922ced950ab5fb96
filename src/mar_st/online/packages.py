"""Optional packages of the online side, imported when they are needed."""

from __future__ import annotations

import sys
from typing import Any

from mar_st.files.packages import load_package


def optional(name: str, extra: str = "online") -> Any:
    """Import a package that an extra of this distribution installs.

    OpenVINO's packages send telemetry as soon as they are imported, unless the telemetry package cannot be
    imported. A process that sees medical queries must not send any.

    Raises:
        PackageError: The package is not installed.
    """
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    return load_package(name, extra=extra)
