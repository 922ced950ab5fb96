"""A whole build from one YAML file: steps in their order, resumable, with a forecast of what it costs."""

from __future__ import annotations

from medteb_mteb.curation.pipeline import training_actions as _training_actions  # noqa: F401 - register steps
from medteb_mteb.curation.pipeline import training_forecast as _training_forecast  # noqa: F401
from medteb_mteb.curation.pipeline.forecast import Charge, Forecast, Planned, Volume, forecast
from medteb_mteb.curation.pipeline.run import Build, BuildReport, StepReport, build
from medteb_mteb.curation.pipeline.schema import Pipeline, load_pipeline

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
