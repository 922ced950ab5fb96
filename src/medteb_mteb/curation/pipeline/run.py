"""Execution of a pipeline: step by step, resuming where an earlier run ended."""

from __future__ import annotations

import shutil
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mar_st.errors import MarError
from medteb_mteb.curation.files.folder import alone
from medteb_mteb.curation.files.read import MANIFEST, concealed
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.pipeline.actions import Job, perform
from medteb_mteb.curation.pipeline.leaks import leak_report
from medteb_mteb.curation.pipeline.preflight import check_before
from medteb_mteb.curation.pipeline.publish import publish, published, withdraw
from medteb_mteb.curation.pipeline.resolve import model_places, resolve
from medteb_mteb.curation.pipeline.schema import DATA, load_pipeline
from medteb_mteb.curation.pipeline.state import FILE, Record, State, content_digest, fingerprint
from medteb_mteb.editions import sha256_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from medteb_mteb.curation.pipeline.resolve import Source
    from medteb_mteb.curation.pipeline.schema import Pipeline
    from medteb_mteb.curation.pipeline.steps import StepBase

__all__ = ["Build", "BuildReport", "StepReport", "build", "until_step"]

#: What becomes of a step.
Fate = Literal["kept", "made", "stopped"]


@dataclass(frozen=True)
class StepReport:
    """Report of one step.

    Attributes:
        name: Its name.
        step: Kind of step.
        fate: `kept` from an earlier run, `made` in this one, or `stopped` before its end.
        result: Its outcome, as JSON values.
        seconds: Wall-clock time; for a kept step, of the run that made it.
        stopped: Why it stopped.
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
        out: Its folder.
        steps: Its steps, in order, as far as it went.
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
        """True if all requested steps finished."""
        return not self.left

    @property
    def data(self) -> Path | None:
        """Folder with all editions and training sets, if there are any."""
        return self.out / DATA if (self.out / DATA).is_dir() else None

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
        until: Name of the last step to do; default all.
        resume: Refuse to start from nothing.
        redo: Run changed steps again.
        retry_failed: Send requests that failed in earlier runs again, and rerun steps that depend on them.
        show_progress: Show bars.
        say: Receives lines for people.

    Raises:
        BuildError: The file cannot be used, there is nothing to resume, a step has changed, or a step cannot
            be done.
        FolderError: Rows of the input that cannot be used.
    """
    opened = Build.open(file)
    wanted = until_step(opened.pipeline, until)
    if resume and not (opened.root / FILE).is_file():
        raise BuildError(f"{opened.root} holds no build to resume; leave out --resume to start one.")
    with alone(opened.root):
        return opened.run(wanted, redo=redo, retry_failed=retry_failed, show_progress=show_progress, say=say)


def until_step(pipeline: Pipeline, until: str | None) -> list[StepBase]:
    """The steps up to one of them, or all.

    Raises:
        BuildError: There is no such step.
    """
    names = [step.name for step in pipeline.steps]
    if until is not None and until not in names:
        raise BuildError(f"There is no step {until!r}; there is {', '.join(names)}.")
    return list(pipeline.steps[: names.index(until) + 1 if until is not None else None])


@dataclass
class Build:
    """A pipeline in its folder."""

    pipeline: Pipeline
    base: Path
    root: Path
    sources: dict[str, dict[str, list[Source]]]
    models: dict[str, dict[str, str]]
    #: Digests of raw inputs that were computed once.
    _digests: dict[Source, str] = field(default_factory=dict)

    @classmethod
    def open(cls, file: str | Path) -> Build:
        """Read a pipeline file and look for all its inputs.

        Raises:
            BuildError: The file or an input cannot be used.
        """
        pipeline, base = load_pipeline(file), Path(file).resolve().parent
        sources = resolve(pipeline, base)
        for step in pipeline.steps:
            step.check(pipeline)
        models = {step.name: model_places(step, base) for step in pipeline.steps}
        return cls(pipeline, base, base / Path(pipeline.out).expanduser(), sources, models)

    def run(
        self,
        wanted: list[StepBase],
        *,
        redo: bool,
        retry_failed: bool,
        show_progress: bool,
        say: Callable[[str], None],
    ) -> BuildReport:
        """Do steps, see `build`."""
        state = State(self.root)
        records = state.records
        check_before(self, [s for s in wanted if s.name not in records or not records[s.name].finished])
        self._withdraw_left_out(state, say)
        reports: list[StepReport] = []
        asked_again: set[str] = set()
        for place, step in enumerate(wanted):
            mark = self.fingerprint(step, state)
            before = state.records.get(step.name)
            again = retry_failed and step.ASKS
            given = [one for some in self.sources[step.name].values() for one in some]
            follows = any(one.step in asked_again for one in given)
            if before is not None and before.fingerprint != mark:
                kept = self.has_made(step, before)
                if kept and not redo and not follows:
                    raise BuildError(self._changed(step, wanted[place:], state))
                if kept:
                    self._set_aside(step, say)
                else:
                    self._discard(step, state)
                state.forget(step.name)
                before = None
            if before is not None and before.finished and self.folder(step).exists() and not again:
                reports.append(StepReport(step.name, step.step, "kept", before.result, before.seconds))
                if step.WRITES == "editions" and not published(self.folder(step), self.root / DATA):
                    publish(self.folder(step), self.root / DATA)
                continue
            if before is not None and step.ATOMIC:
                self._discard(step, state)
            elif before is not None and again:
                # Killed while it is asked again it must not pass for what it was.
                state.put(step.name, Record(step.step, mark))
                with self._writing():
                    (self.folder(step) / MANIFEST).unlink(missing_ok=True)
            say(
                f"[{place + 1}/{len(wanted)}] {step.name}"
                + (f" ({step.step})" if step.name != step.step else "")
            )
            report = self._perform(step, mark, state, again, show_progress, say)
            if again or follows:
                asked_again.add(step.name)
            reports.append(report)
            if report.stopped:
                return BuildReport(self.root, tuple(reports), tuple(one.name for one in wanted[place:]))
        whole = len(wanted) == len(self.pipeline.steps)
        return BuildReport(self.root, tuple(reports), leakage=leak_report(self) if whole else None)

    def _perform(
        self,
        step: StepBase,
        mark: str,
        state: State,
        again: bool,
        show_progress: bool,
        say: Callable[[str], None],
    ) -> StepReport:
        state.put(step.name, Record(step.step, mark))
        started = time.monotonic()
        paths = {key: [one.path for one in found] for key, found in self.sources[step.name].items()}
        models = self.models[step.name]
        job = Job(self, paths, models, self.folder(step), again, show_progress, say)
        try:
            outcome = perform(step, job)
        except (BuildError, MarError) as error:
            raise BuildError(f"Step {step.name!r}: {error}") from error
        except OSError as error:
            what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
            raise BuildError(
                f"Step {step.name!r}: {what}. Mend that, then run the same command to resume."
            ) from error
        seconds = round(time.monotonic() - started, 1)
        if outcome.stopped:
            return StepReport(step.name, step.step, "stopped", outcome.result, seconds, outcome.stopped)
        digest = content_digest(self.folder(step))
        if step.WRITES == "editions":
            publish(self.folder(step), self.root / DATA)
        state.put(step.name, Record(step.step, mark, True, digest, outcome.result, seconds))
        return StepReport(step.name, step.step, "made", outcome.result, seconds)

    @property
    def journal(self) -> Path | None:
        """Journal of judgements; `None`: where it is by default."""
        return self._named(self.pipeline.journal)

    @property
    def answers(self) -> Path | None:
        """Journal of what LLMs wrote; `None`: where it is by default."""
        return self._named(self.pipeline.answers)

    @property
    def store(self) -> Path:
        """Folder that keeps vectors."""
        from mar_st.teachers.store import store_root

        return self._named(self.pipeline.store) or store_root(self.root / "step")

    def _named(self, path: str | None) -> Path | None:
        return self.base / Path(path).expanduser() if path else None

    def folder(self, step: StepBase) -> Path:
        """Folder of a step."""
        return self.root / step.name

    def has_made(self, step: StepBase, record: Record) -> bool:
        """Return True if a step has output to lose: finished, or partial output that it could resume from."""
        return self.folder(step).exists() and (record.finished or not step.ATOMIC)

    def fingerprint(self, step: StepBase, state: State) -> str:
        """Digest of all that a step depends on; the steps before it must be finished."""
        digests = {
            key: [self._digest(one, state) for one in found] for key, found in self.sources[step.name].items()
        }
        models = {name: _model_digest(place) for name, place in self.models[step.name].items()}
        return fingerprint(step, digests, models, self.pipeline)

    def _digest(self, source: Source, state: State) -> str:
        if source.step:
            return f"{state.records[source.step].digest} {source.inside}".rstrip()
        if source not in self._digests:
            self._digests[source] = concealed(content_digest(source.path, texts=source.texts))
        return self._digests[source]

    def _changed(self, step: StepBase, left: list[StepBase], state: State) -> str:
        after = [one.name for one in left[1:] if one.name in state.records]
        also = f", and {', '.join(after)} after it" if after else ""
        return (
            f"Step {step.name!r} was made with other settings or inputs than it has now{also}. Give "
            "--redo to make it again (what was paid for stays in the journals), or another 'out'."
        )

    def _set_aside(self, step: StepBase, say: Callable[[str], None]) -> None:
        """Move the folder of a step that has changed out of the way."""
        folder = self.folder(step)
        if not folder.exists():
            return
        number = 1
        while (aside := folder.with_name(f"{folder.name}.old-{number}")).exists():
            number += 1
        with self._writing():
            if step.WRITES == "editions":
                withdraw(folder, self.root / DATA)
            folder.rename(aside)
        say(f"{step.name} has changed; what was there is in {aside}")

    def _discard(self, step: StepBase, state: State) -> None:
        """Remove the folder of a step that is made from the start; its record goes first."""
        before = state.records[step.name]
        state.put(step.name, Record(before.step, before.fingerprint))
        with self._writing():
            if step.WRITES == "editions":
                withdraw(self.folder(step), self.root / DATA)
            if self.folder(step).exists():
                shutil.rmtree(self.folder(step))

    def _withdraw_left_out(self, state: State, say: Callable[[str], None]) -> None:
        """Take out of the common folder what steps wrote that the file no longer has."""
        names = {step.name for step in self.pipeline.steps}
        with self._writing():
            for name in sorted(state.records.keys() - names):
                if withdraw(self.root / name, self.root / DATA):
                    say(f"{name} is no longer a step; its output is removed from {self.root / DATA}")

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise BuildError(
                f"{error.filename or self.root} cannot be written to ({error.strerror or error}). Mend that, "
                "and run the same command to resume."
            ) from error


def _model_digest(place: str) -> str:
    """Digest of a model's files, or of a run; of one of the Hub its name."""
    if place.startswith("bm25"):
        return place
    if Path(place).is_file():
        return sha256_of(Path(place))
    from mar_st.model.identity import model_digest

    return model_digest(place)
