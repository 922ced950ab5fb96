"""`mar plan --trial`: time and memory of every stage here, measured on real steps of the recipe.

The stages are those of a run, on a sample of the data: the same encoders, batches, losses and compilation,
one after the other in one process, so its memory is that of a run, compiler and allocator included. Each
trains for `STEPS` steps. The last ones are typical; the extra time of the first ones counts once.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from mar_st.errors import MarError
from mar_st.planning.tried import Trial
from mar_st.recipes.schema import Recipe
from mar_st.rehearsal.rehearse import peak_bytes, without_loading_bars
from mar_st.rehearsal.shorten import Shortened, shorten
from mar_st.runs.train import train
from mar_st.stages.memory import MAX_GROWTH
from mar_st.stages.reports import RunCallback

if TYPE_CHECKING:
    from collections.abc import Callable

    from mar_st.recipes.schema import Stage

#: Steps of a stage, and those of them that warm up: kernels are compiled for several shapes.
STEPS, WARM_STEPS = 48, 16
#: Minimum rows that a data entry keeps, and minimum batches of its largest stage.
MIN_ROWS, MIN_BATCHES = 2048, 16

TRIAL_LIMITS = Shortened(steps=STEPS, rows=MIN_ROWS, batches=MIN_BATCHES, every=STEPS)

#: Prefix of the lines of JSON that the process of a trial prints; libraries print too.
MARK = "mar-trial "


class TrialError(MarError):
    """A stage that could not be tried; the message holds its name and the reason."""


def try_stages(recipe: Recipe, *, say: Callable[[str], None] = print) -> dict[str, Trial]:
    """Train every stage of a recipe for some steps and time them.

    Args:
        recipe: The recipe as it will be run.
        say: Receives a line per stage.

    Returns:
        Measurements of each stage, by name.

    Raises:
        TrialError: A stage failed.
    """
    short = shorten(recipe, TRIAL_LIMITS)
    names = [stage.name for stage in short.stages]
    trials: dict[str, Trial] = {}
    with tempfile.TemporaryDirectory(prefix="mar-trial-") as folder, (Path(folder) / "log").open("w+") as log:
        (Path(folder) / "recipe.json").write_text(short.model_dump_json(), encoding="utf-8")
        command = [sys.executable, "-m", "mar_st.rehearsal.trial", folder, str(time.time())]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process:  # noqa: S603
            assert process.stdout is not None  # noqa: S101 -- asked for
            trial_lines = (line for line in process.stdout if line.startswith(MARK))
            for line, name in zip(trial_lines, names, strict=False):
                trial = trials[name] = Trial(**json.loads(line.removeprefix(MARK)))
                say(
                    f"tried {name}: {trial.step:.3g} s a step, {trial.once:.0f} s once, "
                    f"{trial.memory / 2**30:.2f} GiB"
                )
        if len(trials) < len(names):
            log.seek(0)
            reason = (log.read().strip().splitlines() or ["no output"])[-1]
            raise TrialError(f"stage {names[len(trials)]} could not be tried: {reason}")
    return trials


@dataclass
class _Times:
    """Times of a stage's events, in seconds since the epoch, and the work of its teacher."""

    started: float
    steps: list[float] = field(default_factory=list)
    begun: float = 0.0
    evaluated: float = 0.0
    ended: float = 0.0
    texts: int = 0
    encoding: float = 0.0
    memory: int = 0

    def trial(self, finished: float) -> Trial:
        """Return the measurements of the stage, given the time at which its model was saved."""
        times = np.diff(self.steps)
        typical = float(np.mean(times[WARM_STEPS:]))
        return Trial(
            step=typical,
            once=max(0.0, float(np.sum(times[:WARM_STEPS])) - WARM_STEPS * typical),
            start=max(0.0, self.begun - self.started - self.encoding),
            teacher=self.encoding / max(1, self.texts),
            evaluation=self.evaluated,
            finish=max(0.0, finished - self.ended),
            memory=int(self.memory * (1 if torch.cuda.is_available() else MAX_GROWTH)),
        )


class _Clock(RunCallback):
    """Times the stages of the run in this process, and prints a line of JSON for each that is finished."""

    def __init__(self, started: float) -> None:
        self.times = _Times(started)

    def on_stage_end(self, stage: Stage, folder: Path) -> None:
        """Print the measurements of a stage whose model is saved."""
        del stage, folder
        now = time.time()
        print(MARK + json.dumps(asdict(self.times.trial(now))), flush=True)  # noqa: T201 -- read by us
        self.times = _Times(now)

    def on_teacher_encode(self, texts: int, seconds: float) -> None:
        """Add the work of a teacher."""
        self.times.texts += texts
        self.times.encoding += seconds

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Note when the stage has its data and its teacher's vectors."""
        del args, state, control, kwargs
        self.times.begun = time.time()
        self.times.steps = [self.times.begun]

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Note the end of a step."""
        del args, state, control, kwargs
        _wait()
        self.times.steps.append(time.time())

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Note the time of the evaluation after the last step."""
        del args, state, control, kwargs
        self.times.evaluated = time.time() - self.times.steps[-1]

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Note the end of training and the peak memory."""
        del args, state, control, kwargs
        self.times.ended, self.times.memory = time.time(), peak_bytes()


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _main(place: str, started: str) -> None:
    folder = Path(place)
    recipe = Recipe.model_validate_json((folder / "recipe.json").read_text(encoding="utf-8"))
    clock = _Clock(float(started))
    try:
        with without_loading_bars():
            train(
                recipe,
                folder / "run",
                save_steps=10 * STEPS,
                callbacks=[clock],
                fit=False,
                # A trial does not share its stages or its teacher's vectors.
                stages=False,
                store=folder / "teacher-store",
            )
    except MarError as error:
        sys.exit(" ".join(str(error).split()))


if __name__ == "__main__":
    _main(*sys.argv[1:])
