"""A whole build from one YAML file: steps in order, resumable, with a forecast of its cost."""

from __future__ import annotations

from medteb_mteb.curation.pipeline.building import BuildReport, StepReport, build
from medteb_mteb.curation.pipeline.forecast import Forecast, Planned, forecast
from medteb_mteb.curation.pipeline.opened import Build
from medteb_mteb.curation.pipeline.schema import Pipeline, load_pipeline
from medteb_mteb.curation.pipeline.work import Charge, Volume

__all__ = [
    "Build",
    "BuildReport",
    "Charge",
    "Forecast",
    "Pipeline",
    "Planned",
    "StepReport",
    "Volume",
    "build",
    "forecast",
    "load_pipeline",
]
