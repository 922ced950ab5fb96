"""Run all GPU measurements in one call: tests, training steps, encoding, a small model.

    PYTHONPATH=src python benchmarks/gpu.py --budget-minutes 30           # all, the most telling first
    PYTHONPATH=src python benchmarks/gpu.py --only tests train-4b-512 # some steps
    PYTHONPATH=src python benchmarks/gpu.py --tiny                        # a rehearsal, on a CPU too

Nothing is downloaded, the package need not be installed, and encoders have random weights of the published
shapes. Each step runs in a process of its own with a time limit, so a crash or a hang loses that step alone.
After each step `OUT/DEVICE/NAME.json` and the table `OUT/DEVICE/gpu.md` are written, also when the call is
interrupted (SIGINT, SIGTERM). Called again, it keeps the steps that are done and runs the others; `--again`
runs them all. What a step printed is in `OUT/DEVICE/logs`. Where a package or an architecture is missing, the
steps that need it are left out and the table says so.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROOT = Path(__file__).resolve().parents[1]

#: A step is not started with fewer seconds left.
MIN_STEP_SECONDS = 15
#: Exit code of a step that lacks something; its reason is in the result.
LEFT_OUT_EXIT_CODE = 3
#: Seconds a process gets to end by itself.
GRACE_SECONDS = 15


@dataclass(frozen=True)
class Step:
    """A step: its name and the minutes it may take at most."""

    name: str
    minutes: float


STEPS = (
    Step("environment", 2),
    Step("tests", 7),
    Step("weights", 5),
    Step("train-4b-512", 6),
    Step("encode-4b-512", 6),
    Step("train-0.3b-512", 3),
    Step("train-4b-real", 5),
    Step("train-0.3b-real", 3),
    Step("encode-4b-real", 4),
    Step("mar-small-gpu", 10),
)


class SignalError(Exception):
    """A signal asked for the end."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class Runner:
    """Runs steps one after the other and writes down what each gave.

    Args:
        steps: In their order.
        out: Folder of the results.
        command: The command of a step; it writes its result as JSON to the path given, as often as it likes.
        seconds: Budget of all steps together.
        table: Makes the text of `gpu.md` from the records by name.
        environment: Of the processes.
        again: Run steps that are done, too.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        out: Path,
        command: Callable[[Step, Path], list[str]],
        *,
        seconds: float,
        table: Callable[[dict[str, Any]], str],
        environment: dict[str, str] | None = None,
        again: bool = False,
    ) -> None:
        self.steps, self.out, self.command, self.table = steps, out, command, table
        self.deadline = time.monotonic() + seconds
        self.environment, self.again = environment, again
        self._child: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        """Run the unfinished steps; returns the exit code."""
        (self.out / "logs").mkdir(parents=True, exist_ok=True)
        before = {number: signal.signal(number, _interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            for step in self.steps:
                if not self.again and self.record(step).get("status") == "done":
                    print(f"{step.name}: done before, kept", flush=True)
                    continue
                remaining = self.deadline - time.monotonic()
                if remaining < MIN_STEP_SECONDS:
                    print(f"{step.name}: not reached, the budget is spent", flush=True)
                    continue
                self._one(step, min(60 * step.minutes, remaining))
                self.write_table()
        except SignalError as reason:
            print(f"interrupted by {reason}", flush=True)
            return 128 + reason.number
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            self.write_table()
        return 0

    def record(self, step: Step) -> dict[str, Any]:
        """Return the record of a step; empty if it was never started."""
        with suppress(OSError, ValueError):
            record: dict[str, Any] = json.loads((self.out / f"{step.name}.json").read_text(encoding="utf-8"))
            return record
        return {}

    def write_table(self) -> None:
        """Write the table of all steps there are, run by this call or not."""
        records = {}
        for path in sorted(self.out.glob("*.json")):
            records[path.stem] = self.record(Step(path.stem, 0))
        write(self.out / "gpu.md", self.table(records))

    def _one(self, step: Step, seconds: float) -> None:
        print(f"{step.name} ... (at most {seconds:.0f} s)", flush=True)
        result = self.out / "logs" / f"{step.name}.result"
        result.unlink(missing_ok=True)
        started = time.monotonic()
        status, reason = "interrupted", ""
        try:
            status, reason = self._wait(step, seconds, result)
        finally:
            content: dict[str, Any] = {}
            with suppress(OSError, ValueError):
                content = json.loads(result.read_text(encoding="utf-8"))
            reason = content.pop("left_out", reason)
            took = round(time.monotonic() - started, 1)
            record = {
                "step": step.name,
                "status": status,
                "seconds": took,
                "reason": reason,
                "result": content,
            }
            write(self.out / f"{step.name}.json", json.dumps(record, indent=1, ensure_ascii=False))
            print(f"{step.name}: {status} after {took:.0f} s {reason}", flush=True)

    def _wait(self, step: Step, seconds: float, result: Path) -> tuple[str, str]:
        log = self.out / "logs" / f"{step.name}.log"
        with log.open("wb") as stream:
            child = subprocess.Popen(
                self.command(step, result),
                stdout=stream,
                stderr=subprocess.STDOUT,
                env=self.environment,
                start_new_session=True,  # so that what it started ends with it
            )
            try:
                code = child.wait(timeout=seconds)
            except subprocess.TimeoutExpired:
                return "timed out", f"after {seconds:.0f} s"
            finally:
                end(child)
        if code == LEFT_OUT_EXIT_CODE:
            return "left out", ""
        if code:
            lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            return "failed", f"exit code {code}: {lines[-1][:300] if lines else 'nothing printed'}"
        return "done", ""


def _interrupt(number: int, frame: object) -> None:
    del frame
    raise SignalError(number)


def end(child: subprocess.Popen[bytes]) -> None:
    """End a process and all that it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, number)
        if child.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                child.wait(timeout=GRACE_SECONDS)


def write(path: Path, text: str) -> None:
    """Write a file aside, sync it and move it: readers never meet half of it."""
    part = path.with_suffix(path.suffix + ".part")
    with part.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    part.replace(path)


def device_name() -> str:
    """The first GPU as the driver names it, or `cpu`."""
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError):
        return "cpu"
    return output.strip().splitlines()[0].strip() if output.strip() else "cpu"


def environment_of(device: str, *, tiny: bool) -> dict[str, str]:
    """Variables of a step: the sources of this checkout, no network, no stores of earlier runs."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("MAR_")}
    paths = [str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables |= {"PYTHONPATH": os.pathsep.join(paths), "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}
    if device == "cpu":
        variables["MEDTEB_GPU_REHEARSAL"] = "cpu"
        if tiny:  # threads that wait for each other only cost time at these sizes
            variables["OMP_NUM_THREADS"] = "1"
    return variables


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("runs/gpu"))
    parser.add_argument("--only", nargs="+", choices=[step.name for step in STEPS], metavar="STEP")
    parser.add_argument("--budget-minutes", type=float, default=30)
    parser.add_argument("--data", type=Path, help="folder with the data of mar-small-gpu; default made up")
    parser.add_argument("--tiny", action="store_true", help="small encoders and few steps: a rehearsal")
    parser.add_argument("--again", action="store_true", help="run steps that are done, too")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))
    if options.run:
        from gpu_steps import run_step

        run_step(options.run, options.out, options.result, tiny=options.tiny, data=options.data)
        return
    from gpu_table import markdown

    device = device_name()
    out = (options.out / (device.replace(" ", "-") + ("-tiny" if options.tiny else ""))).resolve()
    extra = ["--tiny"] if options.tiny else []
    extra += ["--data", str(options.data.resolve())] if options.data else []

    def command(step: Step, result: Path) -> list[str]:
        fixed = [sys.executable, __file__, "--run", step.name, "--out", str(out), "--result", str(result)]
        return [*fixed, *extra]

    chosen = [step for step in STEPS if not options.only or step.name in options.only]
    runner = Runner(
        chosen,
        out,
        command,
        seconds=60 * options.budget_minutes,
        table=lambda records: markdown(records, [step.name for step in STEPS]),
        environment=environment_of(device, tiny=options.tiny),
        again=options.again,
    )
    code = runner.run()
    print((out / "gpu.md").read_text(encoding="utf-8"))
    sys.exit(code)


if __name__ == "__main__":
    main()
