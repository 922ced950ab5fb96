"""`--rehearse`: every stage of a recipe for twenty steps, killed once and resumed, before hours are spent.

A rehearsal is the real run with `max_steps` 20 and checkpoints every 10: the same data code, the same losses,
the same batch sizes. Each stage is stopped two steps after its first checkpoint, as by a crash, and a fresh
call resumes with it.
"""

from __future__ import annotations

import json
import math
import resource
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from transformers.utils import logging

from mar_st.data import Source, read_source
from mar_st.errors import MarError
from mar_st.files import JsonError, read_json, write_text
from mar_st.files.locks import LOCK, alone, clear
from mar_st.modules.layout import own_modules
from mar_st.rehearsal.shorten import Shortened, shorten
from mar_st.runs.train import train
from mar_st.stages.monitor import METRICS_FILE, evaluation_results, read_metrics
from mar_st.stages.reports import RunCallback

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mar_st.recipes.schema import Data, Recipe, Stage

STEPS = 20
SAVE_STEPS = 10
#: The step after which a stage is stopped for the first time.
STOP_STEP = 12

#: Batches of data per stage, which it repeats.
BATCHES = 2

REHEARSAL_LIMITS = Shortened(steps=STEPS, rows=BATCHES, batches=BATCHES, every=SAVE_STEPS)

#: First file of a rehearsal's folder; only folders with it are replaced.
MARKER_FILE = "rehearsal.json"

#: Settings of a data entry that do not change its rows.
SETTINGS_AFTER_READING = {"name", "expected_rows", "weight", "negatives", "positives", "symmetric", "role"}

TEXTS = ["头疼发热应该吃什么药", "The patient presented with acute chest pain."]


class RehearsalError(MarError):
    """A stage that does not do what a run needs; the message names the stage and the reason."""


class Stopped(BaseException):
    """Simulates a kill: no error handler catches it."""


@dataclass
class StageReport:
    """Result of one rehearsed stage.

    Attributes:
        name: Name of the stage.
        folder: Its folder in the run.
        resumed_from: Step that the second call resumed from.
        steps: Steps done.
        losses: Loss of every step, by step.
        seconds: Wall-clock time of every step.
        evaluations: Steps after which the development set was evaluated.
        peak_bytes: Peak memory: of the CUDA device, or of the process so far on a CPU.
    """

    name: str
    folder: Path
    resumed_from: int | None = None
    steps: int = 0
    losses: dict[int, float] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    evaluations: list[int] = field(default_factory=list)
    peak_bytes: int = 0

    def line(self) -> str:
        """Return the result as one line for a terminal."""
        first, last = self.losses[min(self.losses)], self.losses[max(self.losses)]
        # The first step of each call includes the warm-up.
        typical = sorted(self.seconds)[len(self.seconds) // 2]
        return (
            f"{self.name:16} {self.steps} steps, resumed from {self.resumed_from}, {typical:.2f} s/step, "
            f"peak {self.peak_bytes / 2**30:.2f} GiB, loss {first:.4f} -> {last:.4f}"
        )


class Watch(RunCallback):
    """Records every step of every stage, stops each stage once and checks its result.

    Args:
        evaluated: Whether stages evaluate on a development set.
        say: Receives a line per finished stage.
    """

    def __init__(self, *, evaluated: bool, say: Callable[[str], None]) -> None:
        self.checked: list[StageReport] = []
        self.current: StageReport | None = None
        self._evaluated, self._say = evaluated, say
        self._stopped = False
        self._started = 0.0

    @property
    def _report(self) -> StageReport:
        assert self.current is not None  # noqa: S101 -- trainers run within stages
        return self.current

    def on_stage_begin(self, stage: Stage, folder: Path) -> None:
        """Start a report, unless the stage resumes."""
        if self.current is None or self.current.folder != folder:
            self.current, self._stopped = StageReport(stage.name, folder), False

    def on_stage_end(self, stage: Stage, folder: Path) -> None:
        """Check the stage and print its report."""
        report = self._report
        _check(stage, folder, report, evaluated=self._evaluated)
        self.current = None
        self.checked.append(report)
        self._say(report.line())

    def on_init_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Log every step."""
        del state, control, kwargs
        args.logging_steps = 1

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Note where training starts."""
        del args, control, kwargs

        if self._stopped:
            self._report.resumed_from = state.global_step
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the clock."""
        del args, state, control, kwargs
        self._started = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop the clock, and the stage after step `STOP_STEP`."""
        del args, control, kwargs
        report = self._report
        report.seconds.append(time.perf_counter() - self._started)
        report.steps = state.global_step
        report.peak_bytes = max(report.peak_bytes, peak_bytes())
        if state.global_step == STOP_STEP and not self._stopped:
            self._stopped = True
            raise Stopped

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        """Keep the loss."""
        del args, control, kwargs
        if logs and "loss" in logs:
            self._report.losses[state.global_step] = float(logs["loss"])


def peak_bytes() -> int:
    """Return the peak memory so far: of the tensors on the CUDA device, or of this process without one."""
    if torch.cuda.is_available():
        return int(torch.cuda.max_memory_allocated())
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


@contextmanager
def without_loading_bars() -> Iterator[None]:
    """Hide transformers' progress bars of loading and saving; those of training stay."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def rehearse(recipe: Recipe, out: str | Path, *, say: Callable[[str], None] = print) -> list[StageReport]:
    """Run every stage of a recipe for twenty steps, stop it after twelve, resume it and check its result.

    Args:
        recipe: The recipe as it will be run, or a shrunk one (`mar_st.rehearsal.tiny.shrink`).
        out: Folder of the rehearsal; an earlier one is replaced.
        say: Receives one line per stage.

    Returns:
        A report per stage, in order.

    Raises:
        RehearsalError: The folder holds something else than a rehearsal. Or a stage failed, did not resume,
            had a non-finite loss, was not evaluated, or left a model that sentence-transformers alone cannot
            load and use.
    """
    out, short = Path(out), shorten(recipe, REHEARSAL_LIMITS)
    start_folder(out, recipe.name)
    watch, read = Watch(evaluated=short.evaluation is not None, say=say), _reader()
    finished = False
    with without_loading_bars():
        while not finished:
            try:
                train(
                    short,
                    out,
                    save_steps=SAVE_STEPS,
                    say=lambda _: None,
                    read=read,
                    callbacks=[watch],
                    # A rehearsal does not share its stages or its teacher's vectors.
                    stages=False,
                    store=out / "teacher-store",
                )
                finished = True
            except Stopped:
                pass
            except RehearsalError:
                raise
            except Exception as error:
                where = "before the first stage" if not watch.checked else "after the last stage"
                if watch.current is not None:
                    where = f"stage {watch.current.name}"
                raise RehearsalError(f"{where}: {type(error).__name__}: {error}") from error
    return watch.checked


def start_folder(folder: Path, name: str) -> None:
    """Make an empty folder with the marker of a rehearsal; an earlier rehearsal there is deleted.

    Args:
        folder: The folder.
        name: Name of what is rehearsed.

    Raises:
        RehearsalError: The folder holds something else than a rehearsal, or another process is writing it.
    """
    empty = folder.is_dir() and all(path.name == LOCK for path in folder.iterdir())
    if folder.exists() and not empty and not _is_rehearsal(folder):
        raise RehearsalError(
            f"{folder} holds something else than a rehearsal, which would be deleted. Choose another "
            "--out, or delete it yourself."
        )
    with alone(folder, RehearsalError):
        clear(folder)
        write_text(folder / MARKER_FILE, json.dumps({"rehearsal": name}) + "\n")


def _is_rehearsal(folder: Path) -> bool:
    """Return True if a folder was started as a rehearsal and no real run has used it since."""
    if not (folder / MARKER_FILE).is_file():
        return False
    if not (folder / "recipe.json").is_file():
        return True
    try:
        stages = read_json(folder / "recipe.json")["stages"]
        return all(stage["max_steps"] == STEPS for stage in stages)
    except (JsonError, KeyError, TypeError):
        return False


def _reader() -> Callable[[Data, int], Source]:
    """Return a reader that reads rows once for all calls of a rehearsal and all entries that share them."""
    sources: dict[tuple[str, int], Source] = {}

    def read(entry: Data, seed: int) -> Source:
        key = (entry.model_dump_json(exclude=SETTINGS_AFTER_READING), seed)
        if key not in sources:
            sources[key] = read_source(entry, seed)
        return replace(sources[key], entry=entry)

    return read


def _check(stage: Stage, folder: Path, report: StageReport, *, evaluated: bool) -> None:
    def fail(reason: str) -> RehearsalError:
        return RehearsalError(f"stage {stage.name}: {reason}")

    if report.steps != STEPS:
        raise fail(f"ended after {report.steps} of {STEPS} steps")
    if report.resumed_from != SAVE_STEPS:
        raise fail(f"resumed from step {report.resumed_from}, not from its checkpoint at step {SAVE_STEPS}")
    if not report.losses:
        raise fail("logged no loss")
    bad = {step: loss for step, loss in report.losses.items() if not math.isfinite(loss)}
    if bad:
        raise fail(f"the loss was {next(iter(bad.values()))} at step {next(iter(bad))}")
    report.evaluations = [step for step, _ in evaluation_results(read_metrics(folder / METRICS_FILE))]
    if evaluated and not report.evaluations:
        raise fail("the development set was not evaluated")
    _check_model(folder / "model", fail)


def _check_model(folder: Path, fail: Callable[[str], RehearsalError]) -> None:
    """Load the model and encode with it, as its card says: with sentence-transformers."""
    try:
        model = SentenceTransformer(str(folder), trust_remote_code=own_modules(folder))
        queries, documents = model.encode_query(TEXTS), model.encode_document(TEXTS)
    except Exception as error:
        raise fail(f"its model does not load and encode: {type(error).__name__}: {error}") from error
    for name, vectors in (("query", queries), ("document", documents)):
        if not np.isfinite(vectors).all():
            raise fail(f"its model gives {name} vectors that are not finite")
    if queries.shape != documents.shape:
        raise fail(
            f"its model gives queries {queries.shape[1]} and documents {documents.shape[1]} dimensions"
        )
