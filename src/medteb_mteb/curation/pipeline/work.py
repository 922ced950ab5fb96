"""Arguments and results of a step: of its run (`StepJob`, `StepOutcome`) and its forecast (`StepView`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medteb_mteb.curation.files.read import read_texts

if TYPE_CHECKING:
    from collections.abc import Callable

    from medteb_mteb.curation.files.records import Text
    from medteb_mteb.curation.files.step import TextsReport
    from medteb_mteb.curation.pipeline.settings import PipelineSettings

__all__ = ["Charge", "StepJob", "StepOutcome", "StepView", "Volume", "Workspace", "counts_of"]


@dataclass
class Workspace:
    """The places of a build that its steps share.

    Attributes:
        pipeline: The settings of the pipeline.
        base: Folder of the pipeline file.
        root: Folder of the build.
    """

    pipeline: PipelineSettings
    base: Path
    root: Path

    @property
    def journal(self) -> Path | None:
        """Return the journal of judgements; `None`: at its default path."""
        return self._named(self.pipeline.journal)

    @property
    def answers(self) -> Path | None:
        """Return the journal of LLM answers; `None`: at its default path."""
        return self._named(self.pipeline.answers)

    @property
    def store(self) -> Path:
        """Return the folder that keeps vectors."""
        from mar_st.teachers.store import store_root  # lazy: torch

        return self._named(self.pipeline.store) or store_root(self.root / "step")

    def _named(self, path: str | None) -> Path | None:
        return self.base / Path(path).expanduser() if path else None


@dataclass(frozen=True)
class StepJob:
    """Arguments of the run of a step.

    Attributes:
        build: The places of the build.
        inputs: Paths, by key.
        models: Places of the models, by the step's names for them.
        folder: Folder to write.
        retry_failed: Ask again for everything that failed in earlier runs.
        show_progress: Show progress bars.
        say: Called with every message for the user.
    """

    build: Workspace
    inputs: dict[str, list[str]]
    models: dict[str, str]
    folder: Path
    retry_failed: bool
    show_progress: bool
    say: Callable[[str], None]

    @property
    def pipeline(self) -> PipelineSettings:
        """Return the settings of the pipeline."""
        return self.build.pipeline

    def path(self, key: str) -> str:
        """Return the one path of an input."""
        return self.inputs[key][0]

    def texts(self, key: str) -> dict[str, Text]:
        """Return the texts of an input, by id."""
        return {text.id: text for text in read_texts(self.path(key))}


@dataclass(frozen=True)
class StepOutcome:
    """Outcome of a step.

    Attributes:
        result: Reported numbers, as JSON values.
        stopped: Why the step ended early; empty if it did not.
    """

    result: dict[str, Any] = field(default_factory=dict)
    stopped: str = ""


def counts_of(report: TextsReport) -> dict[str, Any]:
    """Return the numbers of a report on texts, as a `StepOutcome` has them."""
    return {"read": report.read, "kept": report.kept, "dropped": report.dropped}


@dataclass(frozen=True)
class Volume:
    """Number of items and tokens.

    Attributes:
        items: Number of texts, pairs or triples.
        tokens: Estimated tokens of all texts.
        queries: Number of queries of the pairs.
        exact: True if counted; otherwise an upper bound.
    """

    items: int
    tokens: int = 0
    queries: int = 0
    exact: bool = True


@dataclass(frozen=True)
class Charge:
    """Requests to an LLM and their cost.

    Attributes:
        name: Name of the LLM.
        requests: Number of requests.
        tokens_in: Estimated tokens of their prompts.
        tokens_out: Estimated tokens of the answers.
        cost: Cost of the requests.
        known: Number of answers in the journal.
        exact: True if counted (assuming every answer is valid); otherwise estimated from the maximum number
            of texts, of the mean length.
        checks: Maximum number of further requests, which depend on the answers.
    """

    name: str
    requests: int
    tokens_in: int
    tokens_out: int
    cost: float
    known: int = 0
    exact: bool = True
    checks: int = 0


@dataclass
class StepView:
    """Arguments of the forecast of a step.

    Attributes:
        build: The places of the build.
        folder: Folder of the step.
        paths: Paths of the step's inputs, by key.
        volumes: Returns the volumes of the inputs by key; only requested volumes are read.
        ready: Whether all inputs exist.
        retry_failed: Whether requests that failed before are sent again.
    """

    build: Workspace
    folder: Path
    paths: dict[str, list[str]]
    volumes: Callable[[str], list[Volume]]
    ready: bool
    retry_failed: bool

    @property
    def pipeline(self) -> PipelineSettings:
        """Return the settings of the pipeline."""
        return self.build.pipeline

    def path(self, key: str) -> str:
        """Return the one path of an input."""
        return self.paths[key][0]

    def volume(self, key: str) -> Volume:
        """Return the one volume of an input."""
        return self.volumes(key)[0]
