"""Export of the query side for online use, without torch: `mar export`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from mar_st.options import Argument, Settings

if TYPE_CHECKING:
    from mar_st.online.listing import Listing

__all__ = ["ExportSettings", "as_text", "export"]


class ExportSettings(Settings):
    """Settings of `mar export`."""

    model: Annotated[str, Argument()] = Field(description="Model: folder, Hub name or mar-mini.")
    out: Annotated[Path, Argument()] = Field(description="Folder to write.")
    format: list[Literal["native-int8", "openvino-int8", "openvino-fp32", "onnx-int8", "onnx-fp32"]] = Field(
        ["native-int8", "openvino-int8"],
        min_length=1,
        description="Runtime and precision; may be repeated. Lookup encoders always become int8 for numpy.",
    )
    query_encoder: str | None = Field(
        None, description="Name of the query encoder in a model with several, e.g. query-lookup."
    )


def export(settings: ExportSettings) -> Listing | dict[str, Any]:
    """Export an optimised query encoder that runs without torch.

    All requested variants are written, compared with the original and timed on this processor; the fastest
    one that is close to the original is loaded by default. One that cannot be written or run is left out and
    listed with the reason. A lookup encoder becomes a model folder with its table in int8.
    """
    from mar_st.export.exporting import run  # lazy: torch

    return run(settings)


def as_text(written: Listing | dict[str, Any]) -> str:
    """Return what was written as text: one line per variant, the chosen one marked."""
    refused: dict[str, str] = {}
    if isinstance(written, dict):  # a lookup encoder
        chosen, dim = "numpy-int8", written["dim"]
        reports = {chosen: written}
    else:
        chosen, dim, refused = written.chosen, written.dim, written.refused
        reports = {name: variant.report for name, variant in written.variants.items()}
    columns = ["p50_ms", "per_second", "bytes", "cosine_min", "cosine_mean"]
    lines = [f"query encoder of {dim} dimensions"]
    lines.append(f"  {'variant':16}" + "".join(f"{name:>13}" for name in columns))
    for name, report in reports.items():
        mark = "*" if name == chosen else " "
        lines.append(f"{mark} {name:16}" + "".join(f"{report[column]:13,g}" for column in columns))
    lines += [f"{name} left out: {reason}" for name, reason in refused.items()]
    if not reports[chosen]["within_limits"]:
        lines.append(f"No variant is within the limits; {chosen} is the closest to the original.")
    return "\n".join(lines)
