"""Step `append`: the test of a month becomes a slice of the live edition."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from mar_st.files import write_json
from medteb_mteb.curation.edition.append import AppendSettings
from medteb_mteb.curation.edition.append import append as append_slices
from medteb_mteb.curation.loop.start import MonthSettings
from medteb_mteb.curation.step import Counts, Estimate, Input, Step

if TYPE_CHECKING:
    from collections.abc import Mapping


class AppendStepSettings(MonthSettings):
    """Options of the step."""

    data: Annotated[Path, Input("editions")] = Field(description="Retrieval edition of the month.")
    live: Path = Field(description="Folder of the slices of all months; a new one is made.")


def append(settings: AppendStepSettings) -> Counts:
    """Append an edition to a live edition as the slice of the month, and write what was appended."""
    report = append_slices(AppendSettings(live=settings.live, data=settings.data, slice=settings.month))
    (slice_,) = report["slices"]
    entry = {key: slice_[key] for key in ("slice", "digest", "counts", "dropped")}
    write_json(settings.out / "slice.json", entry)
    queries = slice_["counts"]["queries"]
    return Counts(queries, queries=queries, details=entry)


def _estimate(settings: AppendStepSettings, sizes: Mapping[str, Estimate]) -> Estimate:
    del settings
    return sizes["data"]


APPEND = Step("append", AppendStepSettings, append, "file", _estimate, result_file="slice.json", alone=False)
