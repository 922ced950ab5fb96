"""Execution of a pipeline: step by step, resuming where an earlier run ended."""

from __future__ import annotations

import shutil
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from mar_st.errors import MarError
from medteb_mteb.curation.edition.describe import add_leakage
from medteb_mteb.curation.files.folder import alone
from medteb_mteb.curation.files.read import MANIFEST
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.pipeline.leaks import leak_report
from medteb_mteb.curation.pipeline.opened import Build, until_step
from medteb_mteb.curation.pipeline.preflight import check_before
from medteb_mteb.curation.pipeline.publish import publish, published, withdraw
from medteb_mteb.curation.pipeline.schema import DATA_FOLDER
from medteb_mteb.curation.pipeline.state import STATE_FILE, State, StepRecord, content_digest
from medteb_mteb.curation.pipeline.work import StepJob

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from medteb_mteb.curation.pipeline.base import PipelineStep

__all__ = ["BuildReport", "StepReport", "build"]

#: Decisions about a step.
Fate = Literal["kept", "made", "stopped"]


@dataclass(frozen=True)
class StepReport:
    """Report of one step.

    Attributes:
        name: Name of the step.
        step: Kind of step.
        fate: `kept` from an earlier run, `made` in this one, or `stopped` before its end.
        result: Outcome of the step, as JSON values.
        seconds: Wall-clock time; for a kept step, that of the run that made it.
        stopped: Why the step stopped.
    """

    name: str
    step: str
    fate: Fate
    result: dict[str, Any]
    seconds: float
    stopped: str = ""


@dataclass(frozen=True)
class BuildReport:
    """Report of a build.

    Attributes:
        out: Folder of the build.
        steps: The steps that were run, in order.
        left: Names of the requested steps that did not finish.
        leakage: Leakage report of a whole build with editions and training data, see
            `medteb_mteb.curation.pipeline.leaks`.
    """

    out: Path
    steps: tuple[StepReport, ...]
    left: tuple[str, ...] = ()
    leakage: dict[str, Any] | None = None

    @property
    def complete(self) -> bool:
        """Return True if all requested steps finished."""
        return not self.left

    @property
    def data(self) -> Path | None:
        """Return the folder with all editions and training sets, if there are any."""
        return self.out / DATA_FOLDER if (self.out / DATA_FOLDER).is_dir() else None

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "out": str(self.out),
            "data": str(self.data) if self.data else None,
            "steps": [asdict(step) for step in self.steps],
            "left": list(self.left),
            "complete": self.complete,
            "leakage": self.leakage,
        }


def build(
    file: str | Path,
    *,
    until: str | None = None,
    resume: bool = False,
    redo: bool = False,
    retry_failed: bool = False,
    show_progress: bool = True,
    say: Callable[[str], None] = print,
) -> BuildReport:
    """Run the steps of a pipeline file in order.

    Every step has a folder of its name in the build's folder. Finished steps are kept, and an interrupted one
    resumes. A step whose settings or inputs have changed is an error unless `redo` is set; its old folder is
    then moved aside. Judgements and other paid answers are kept in journals and never requested again.

    Args:
        file: The pipeline, see `medteb_mteb.curation.pipeline.schema.Pipeline`.
        until: Name of the last step to run; default all.
        resume: Fail if there is nothing to resume.
        redo: Run changed steps again.
        retry_failed: Send requests that failed in earlier runs again, and rerun steps that depend on them.
        show_progress: Show progress bars.
        say: Called with every message for the user.

    Raises:
        BuildError: The file cannot be used, there is nothing to resume, a step has changed, or a step cannot
            be run.
        FolderError: The input has unusable rows.
    """
    opened = Build.open(file)
    wanted = until_step(opened.pipeline, until)
    if resume and not (opened.root / STATE_FILE).is_file():
        raise BuildError(f"{opened.root} holds no build to resume; leave out --resume to start one.")
    with alone(opened.root):
        return _Run(opened, redo, retry_failed, show_progress, say).steps(wanted)


@dataclass
class _Run:
    """One run of a build, see `build`."""

    opened: Build
    redo: bool
    retry_failed: bool
    show_progress: bool
    say: Callable[[str], None]

    def __post_init__(self) -> None:
        self.state = State(self.opened.root)
        #: The editions and training sets of all steps.
        self.data = self.opened.root / DATA_FOLDER

    def steps(self, wanted: list[PipelineStep]) -> BuildReport:
        """Run the steps."""
        state, opened = self.state, self.opened
        records = state.records
        check_before(opened, [s for s in wanted if s.name not in records or not records[s.name].finished])
        self._withdraw_left_out()
        reports: list[StepReport] = []
        asked_again: set[str] = set()
        for place, step in enumerate(wanted):
            mark = opened.fingerprint(step, state)
            before = state.records.get(step.name)
            again = self.retry_failed and step.ASKS
            inputs = [one for resolved in opened.sources[step.name].values() for one in resolved]
            follows = any(one.step in asked_again for one in inputs)
            if before is not None and before.fingerprint != mark:
                kept = opened.has_made(step, before)
                if kept and not self.redo and not follows:
                    raise BuildError(self._changed(step, wanted[place:]))
                if kept:
                    self._set_aside(step)
                else:
                    self._discard(step)
                state.forget(step.name)
                before = None
            if before is not None and before.finished and opened.folder(step).exists() and not again:
                reports.append(StepReport(step.name, step.step, "kept", before.result, before.seconds))
                if step.WRITES == "editions" and not published(opened.folder(step), self.data):
                    publish(opened.folder(step), self.data)
                continue
            if before is not None and step.ATOMIC:
                self._discard(step)
            elif before is not None and again:
                # If the run is killed during the new requests, the step must not count as finished.
                state.put(step.name, StepRecord(step.step, mark))
                with self._writing():
                    (opened.folder(step) / MANIFEST).unlink(missing_ok=True)
            self.say(
                f"[{place + 1}/{len(wanted)}] {step.name}"
                + (f" ({step.step})" if step.name != step.step else "")
            )
            report = self._perform(step, mark, again)
            if again or follows:
                asked_again.add(step.name)
            reports.append(report)
            if report.stopped:
                return BuildReport(opened.root, tuple(reports), tuple(one.name for one in wanted[place:]))
        complete = len(wanted) == len(opened.pipeline.steps)
        return BuildReport(opened.root, tuple(reports), leakage=self._leakage() if complete else None)

    def _leakage(self) -> dict[str, Any] | None:
        """Search training data for test queries, and record the result in the editions."""
        report = leak_report(self.opened)
        if report is not None:
            steps = [step for step in self.opened.pipeline.steps if step.WRITES == "editions"]
            for folder in (*map(self.opened.folder, steps), self.data):
                add_leakage(folder, report)
        return report

    def _perform(self, step: PipelineStep, mark: str, again: bool) -> StepReport:
        opened, folder = self.opened, self.opened.folder(step)
        self.state.put(step.name, StepRecord(step.step, mark))
        started = time.monotonic()
        paths = {key: [one.path for one in inputs] for key, inputs in opened.sources[step.name].items()}
        models = opened.models[step.name]
        job = StepJob(opened, paths, models, folder, again, self.show_progress, self.say)
        try:
            outcome = step.run(job)
        except (BuildError, MarError) as error:
            raise BuildError(f"Step {step.name!r}: {error}") from error
        except OSError as error:
            problem = f"{error.filename}: {error.strerror}" if error.filename else str(error)
            raise BuildError(
                f"Step {step.name!r}: {problem}. Fix this, then run the same command to resume."
            ) from error
        seconds = round(time.monotonic() - started, 1)
        if outcome.stopped:
            return StepReport(step.name, step.step, "stopped", outcome.result, seconds, outcome.stopped)
        digest = content_digest(folder)
        if step.WRITES == "editions":
            publish(folder, self.data)
        self.state.put(step.name, StepRecord(step.step, mark, True, digest, outcome.result, seconds))
        return StepReport(step.name, step.step, "made", outcome.result, seconds)

    def _changed(self, step: PipelineStep, remaining: list[PipelineStep]) -> str:
        after = [one.name for one in remaining[1:] if one.name in self.state.records]
        also = f", and {', '.join(after)} after it" if after else ""
        return (
            f"Step {step.name!r} was made with other settings or inputs than it has now{also}. Give "
            "--redo to make it again (paid answers stay in the journals), or another 'out'."
        )

    def _set_aside(self, step: PipelineStep) -> None:
        """Move the folder of a changed step aside."""
        folder = self.opened.folder(step)
        if not folder.exists():
            return
        number = 1
        while (aside := folder.with_name(f"{folder.name}.old-{number}")).exists():
            number += 1
        with self._writing():
            if step.WRITES == "editions":
                withdraw(folder, self.data)
            folder.rename(aside)
        self.say(f"{step.name} has changed; its old folder is now {aside}")

    def _discard(self, step: PipelineStep) -> None:
        """Remove the folder of a step that is run from the start; its record is reset first."""
        before = self.state.records[step.name]
        self.state.put(step.name, StepRecord(before.step, before.fingerprint))
        with self._writing():
            if step.WRITES == "editions":
                withdraw(self.opened.folder(step), self.data)
            if self.opened.folder(step).exists():
                shutil.rmtree(self.opened.folder(step))

    def _withdraw_left_out(self) -> None:
        """Remove the output of steps that the file no longer has from the common folder."""
        names = {step.name for step in self.opened.pipeline.steps}
        with self._writing():
            for name in sorted(self.state.records.keys() - names):
                if withdraw(self.opened.root / name, self.data):
                    self.say(f"{name} is no longer a step; its output is removed from {self.data}")

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise BuildError(
                f"{error.filename or self.opened.root} cannot be written to ({error.strerror or error}). "
                "Fix this, then run the same command to resume."
            ) from error
