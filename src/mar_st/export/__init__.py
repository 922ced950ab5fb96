"""Export of the query side for online use, without torch: `mar export`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from mar_st.options import Argument, Settings

if TYPE_CHECKING:
    from mar_st.online.listing import Listing
    from mar_st.online.lookup import LookupListing

__all__ = ["ExportSettings", "as_text", "export"]


class ExportSettings(Settings):
    """Settings of `mar export`."""

    model: Annotated[str, Argument()] = Field(description="Model: folder, Hub name or mar-mini.")
    out: Annotated[Path, Argument()] = Field(description="Folder to write.")
    format: list[Literal["native", "openvino", "onnx", "numpy"]] = Field(
        ["native", "openvino"],
        min_length=1,
        description="Format; may be repeated: native (own C++ kernels, int8 only), openvino, onnx. For a "
        "lookup encoder: numpy.",
    )
    weight_format: list[Literal["fp32", "bf16", "fp16", "int8"]] = Field(
        ["int8"],
        min_length=1,
        description="Format of the weights; may be repeated: fp32, bf16, int8; of numpy: int8, fp16 or fp32.",
    )
    min_cosine: float = Field(
        0.99, description="Minimum mean cosine of the chosen variant to the original's vectors."
    )
    query_encoder: str | None = Field(
        None, description="Name of the query encoder in a model with several, e.g. query-lookup."
    )
    threads: int | None = Field(
        None, ge=1, description="Number of threads per query while measuring; default: all."
    )
    overwrite: bool = Field(False, description="Replace an exported encoder in the folder OUT.")


def export(settings: ExportSettings) -> Listing | LookupListing:
    """Export an optimised query encoder that runs without torch.

    All requested variants are written, compared with the original and timed on this processor; the fastest
    one within the limit is loaded by default. One that cannot be written, or crashes when
    it is measured, is left out and listed with the reason.
    """
    from mar_st.export.exporting import export_graphs  # lazy: torch
    from mar_st.export.lookup import export_lookup  # lazy: torch

    return export_lookup(settings) if "numpy" in settings.format else export_graphs(settings)


def as_text(listing: Any) -> str:
    """Return an export's content as text: one line per variant, the chosen one marked."""
    report = getattr(listing, "report", None)
    if report is not None:
        return (
            f"lookup encoder, {listing.features:,} features of {listing.dim} dimensions in "
            f"{listing.precision}, {report['bytes'] / 1e6:.1f} MB; {report['p50_us']:.0f} us a query, "
            f"{report['per_second']:,.0f} a second; cosine at least {report['cosine_min']:.5f}"
        )
    columns = ["p50_ms", "per_second", "bytes", "rss_mb", "cosine_min", "cosine_mean"]
    lines = [f"{listing.model['model_type']} query encoder of {listing.dim} dimensions"]
    lines.append(f"  {'variant':16}" + "".join(f"{name:>13}" for name in columns))
    for name, variant in listing.variants.items():
        mark = "*" if name == listing.chosen else " "
        lines.append(f"{mark} {name:16}" + "".join(f"{variant.report[column]:13,g}" for column in columns))
    lines += [f"{name} left out: {reason}" for name, reason in listing.refused.items()]
    if not listing.variants[listing.chosen].report["within_limits"]:
        lines.append(f"No variant is within the limit; {listing.chosen} is the closest to the original.")
    return "\n".join(lines)
