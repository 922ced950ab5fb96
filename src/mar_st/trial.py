"""`mar plan --trial`: what a step of every stage takes here, measured on real steps of the recipe.

The stages are those of a run on a sample of the data: the same encoders, batches, losses and compilation.
Each trains for `STEPS` steps in a process of its own, so its memory is that of the stage, compiler and
allocator included. The last steps are typical; what the first ones took beyond that is paid once per run.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import TrainerCallback

from mar_st.errors import MarError
from mar_st.rehearse import in_every_trainer, peak_bytes
from mar_st.schema import Recipe
from mar_st.stages.memory import GROWTH
from mar_st.store import ENCODED
from mar_st.train import train

if TYPE_CHECKING:
    from collections.abc import Callable

#: Steps of a stage, and those of them that warm up: kernels are compiled for several shapes.
STEPS, WARM = 48, 16
#: Rows that a data entry is cut to at least, and batches of its largest stage.
ROWS, BATCHES = 2048, 16


class TrialError(MarError):
    """A stage that could not be tried; the message holds its name and the reason."""


@dataclass(frozen=True)
class Trial:
    """What a stage took.

    Attributes:
        step: Seconds of a typical step, the mean after the first `WARM`.
        once: Seconds that the first steps took beyond typical ones: compilation, first allocations.
        start: Seconds from the call to the first step: imports, reading the sample, loading, the teacher's
            vectors of the sample.
        teacher: Seconds per text of the teacher's vectors; 0 for a stage without a teacher.
        evaluation: Seconds of one evaluation on the development set; 0 without one.
        finish: Seconds from the last step to the saved model.
        memory: Bytes at most: of a CUDA device; or of the process on a CPU, which gives memory back when it
            has grown by half (`mar_st.stages.memory`), so half is added to what the trial took.
    """

    step: float
    once: float
    start: float
    teacher: float
    evaluation: float
    finish: float
    memory: int

    def seconds(self, steps: int, texts: float, evaluations: int) -> float:
        """Of a whole stage.

        Args:
            steps: Its steps.
            texts: Texts that its teacher encodes.
            evaluations: Number of evaluations.
        """
        return (
            self.start + self.once + steps * self.step + texts * self.teacher
            + evaluations * self.evaluation + self.finish
        )  # fmt: skip


def shorten(recipe: Recipe) -> Recipe:
    """The recipe with `STEPS` steps per stage on a sample of its data, and one evaluation at the end."""
    content = recipe.model_dump()
    for stage in content["stages"]:
        stage["max_steps"] = STEPS
    for entry in content["data"]:
        using = [stage for stage in recipe.stages if entry["name"] in {e.name for e in recipe.data_of(stage)}]
        rows = max([ROWS, *(BATCHES * stage.batch_size for stage in using)])
        entry["limit"] = min(entry["limit"] or rows, rows)
    if recipe.evaluation is not None:
        content["evaluation"]["every"] = STEPS
    return Recipe.model_validate(content)


def try_stages(recipe: Recipe, *, say: Callable[[str], None] = print) -> dict[str, Trial]:
    """Train every stage of a recipe for some steps and time them.

    Args:
        recipe: The recipe as it will be run.
        say: Receives a line per stage.

    Returns:
        What each stage took, by name.

    Raises:
        TrialError: A stage failed.
    """
    short = shorten(recipe)
    found = {}
    with tempfile.TemporaryDirectory(prefix="mar-trial-") as place:
        folder = Path(place)
        (folder / "recipe.json").write_text(short.model_dump_json(), encoding="utf-8")
        for stage in short.stages:
            command = [sys.executable, "-m", "mar_st.trial", str(folder), stage.name]
            started = time.time()
            done = subprocess.run(  # noqa: S603 -- our own module
                [*command, str(started)],
                capture_output=True,
                text=True,
                check=False,
            )
            lines = done.stdout.strip().splitlines()
            if done.returncode or not lines:
                reason = (done.stderr.strip().splitlines() or ["no output"])[-1]
                raise TrialError(f"stage {stage.name} could not be tried: {reason}")
            trial = found[stage.name] = Trial(**json.loads(lines[-1]))
            say(
                f"tried {stage.name}: {trial.step:.3g} s a step, {trial.once:.0f} s once, "
                f"{trial.memory / 2**30:.2f} GiB"
            )
    return found


class _Clock(TrainerCallback):
    """Times the steps of the one stage that this process trains."""

    def __init__(self, stage: str) -> None:
        self.stage, self.begun, self.ended, self.evaluated = stage, 0.0, 0.0, 0.0
        self.times: list[float] = []

    def _mine(self, args: Any) -> bool:
        return Path(args.output_dir).parent.name.partition("-")[2] == self.stage

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The stage has its data and its teacher's vectors."""
        del state, control, kwargs
        if self._mine(args):
            self.begun = time.time()
            self.times = [time.perf_counter()]

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A step is done, its batch's tokens included."""
        del state, control, kwargs
        if self._mine(args):
            _wait()
            self.times.append(time.perf_counter())

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The evaluation after the last step is done."""
        del state, control, kwargs
        if self._mine(args):
            self.evaluated = time.perf_counter() - self.times[-1]

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The last step is done, and evaluated."""
        del state, control, kwargs
        if self._mine(args):
            self.ended = time.time()


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def summary(clock: _Clock, encoded: _Encoded, *, started: float, finished: float) -> Trial:
    """Of the times of a stage.

    Args:
        clock: What was noted while it trained.
        encoded: What its teacher did.
        started: When the process was called, seconds since the epoch.
        finished: When the model was saved.
    """
    times = np.diff(clock.times)
    typical = float(np.mean(times[WARM:]))
    return Trial(
        step=typical,
        once=max(0.0, float(np.sum(times[:WARM])) - WARM * typical),
        start=max(0.0, clock.begun - started - encoded.seconds),
        teacher=encoded.seconds / max(1, encoded.texts),
        evaluation=clock.evaluated,
        finish=max(0.0, finished - clock.ended),
        memory=int(peak_bytes() * (1 if torch.cuda.is_available() else GROWTH)),
    )


class _Encoded(logging.Handler):
    """Hears how many texts a teacher encoded, and in how many seconds."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.texts, self.seconds = 0, 0.0

    def emit(self, record: logging.LogRecord) -> None:
        """Add up what the store tells."""
        if record.msg == ENCODED and isinstance(record.args, tuple):
            texts, seconds = record.args
            self.texts, self.seconds = self.texts + int(str(texts)), self.seconds + float(str(seconds))


def _main(place: str, name: str, started: str) -> None:
    folder = Path(place)
    recipe = Recipe.model_validate_json((folder / "recipe.json").read_text(encoding="utf-8"))
    clock, encoded = _Clock(name), _Encoded()
    log = logging.getLogger("mar_st.store")
    log.addHandler(encoded)
    log.setLevel(logging.INFO)
    try:
        with in_every_trainer(clock, folder):
            train(recipe, folder / "run", save_steps=10 * STEPS, say=lambda _: None, until=name)
    except MarError as error:
        sys.exit(" ".join(str(error).split()))
    found = summary(clock, encoded, started=float(started), finished=time.time())
    print(json.dumps(asdict(found)))  # noqa: T201 -- read by the process that asked


if __name__ == "__main__":
    _main(*sys.argv[1:])
