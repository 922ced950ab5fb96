"""The runner of the GPU benchmarks: kept, failed and interrupted steps, and the table of the records."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from gpu import STEPS, Runner, Step
from gpu_table import markdown

ROOT = Path(__file__).parents[2]

#: What a made-up step does, by its name.
BODIES = {
    "good": "count(); report({'value': 1})",
    "bad": "count(); print('out of memory'); sys.exit(1)",
    "crash": "count(); report({'value': 2}); os.kill(os.getpid(), signal.SIGKILL)",
    "lacking": "report({'left_out': 'peft is not installed'}); sys.exit(3)",
    # Its child would outlive it.
    "hang": "report({'value': 3}); subprocess.Popen(['sleep', '60']); time.sleep(60)",
}
CODE = """
import json, os, pathlib, signal, subprocess, sys, time
name, result, counts = sys.argv[1:]

def report(content):
    pathlib.Path(result).write_text(json.dumps(content))

def count():
    with open(counts, "a") as stream:
        stream.write(name + "\\n")

"""


@pytest.fixture
def runner(tmp_path):
    counts = tmp_path / "counts"
    counts.touch()

    def make(*steps, **options):
        def command(step, result):
            return [sys.executable, "-c", CODE + BODIES[step.name], step.name, str(result), str(counts)]

        options = {"seconds": 600, "table": lambda records: markdown(records, steps), **options}
        made = [Step(name, 0.05 if name == "hang" else 1) for name in steps]
        return Runner(made, tmp_path / "out", command, **options)

    make.counts = lambda: counts.read_text().split()
    make.out = tmp_path / "out"
    return make


def record(runner, name):
    return json.loads((runner.out / f"{name}.json").read_text())


@pytest.mark.thorough
def test_a_failed_hanging_or_crashed_step_does_not_stop_the_others(runner):
    started = time.monotonic()
    assert runner("bad", "hang", "crash", "lacking", "good").run() == 0
    assert time.monotonic() - started < 40
    assert record(runner, "good")["status"] == "done"
    assert record(runner, "good")["result"] == {"value": 1}
    assert record(runner, "bad")["status"] == "failed"
    assert "out of memory" in record(runner, "bad")["reason"]
    assert record(runner, "crash")["status"] == "failed"
    assert record(runner, "crash")["result"] == {"value": 2}  # what it had by then
    assert record(runner, "lacking")["status"] == "left out"
    assert record(runner, "lacking")["reason"] == "peft is not installed"
    assert record(runner, "hang")["status"] == "timed out"
    assert record(runner, "hang")["result"] == {"value": 3}
    table = (runner.out / "gpu.md").read_text()
    assert "| lacking | left out |" in table
    assert "peft is not installed" in table


def test_a_second_call_runs_only_unfinished_steps(runner):
    runner("good", "bad").run()
    runner("good", "bad").run()
    assert runner.counts() == ["good", "bad", "bad"]
    runner("good", "bad", again=True).run()
    assert runner.counts() == ["good", "bad", "bad", "good", "bad"]


def test_without_budget_nothing_is_started_and_the_table_says_so(runner):
    runner("good", "bad", seconds=1).run()
    assert runner.counts() == []
    assert "| good | not reached |" in (runner.out / "gpu.md").read_text()


INTERRUPTED = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from gpu import Runner, Step
from gpu_table import markdown

names = ["first", "second", "third"]

def command(step, result):
    code = "import sys, time; open(sys.argv[1], 'w').write(sys.argv[3]); time.sleep(float(sys.argv[2]))"
    return [sys.executable, "-c", code, str(result), "0" if step.name == "first" else "60", '{"value": 1}']

runner = Runner([Step(name, 5) for name in names], Path(sys.argv[2]), command, seconds=600,
                table=lambda records: markdown(records, names))
sys.exit(runner.run())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_call_writes_the_results_so_far(tmp_path, number):
    call = subprocess.Popen([sys.executable, "-c", INTERRUPTED, str(ROOT / "benchmarks"), str(tmp_path)])
    result = tmp_path / "logs" / "second.result"
    for _ in range(600):
        if result.is_file() and result.stat().st_size:
            break
        time.sleep(0.05)
    call.send_signal(number)
    assert call.wait(timeout=30) == 128 + number
    states = {path.stem: json.loads(path.read_text())["status"] for path in tmp_path.glob("*.json")}
    assert states == {"first": "done", "second": "interrupted"}
    assert json.loads((tmp_path / "second.json").read_text())["result"] == {"value": 1}
    table = (tmp_path / "gpu.md").read_text()
    assert "| second | interrupted |" in table
    assert "| third | not reached |" in table


def training(rows, mfu, reserved):
    return {
        "batch": 32, "mini_batch": None, "rows_per_second": rows, "texts_per_second": 3 * rows,
        "tokens_per_second": 9, "mfu": mfu, "executed_mfu": mfu, "reserved_gb": reserved, "planned_gb": 40.0,
        "reserved_to_planned": reserved / 40,
    }  # fmt: skip


def test_the_table_compares_both_trainers_and_marks_missed_aims():
    systems = {"mar": training(20.0, 0.40, 60.0), "st": training(10.0, 0.20, 70.0)}
    steps = {"train-4b-512": {"status": "timed out", "result": {"systems": systems}}}
    table = markdown(steps, ["train-4b-512", "tests"])
    (line,) = [row for row in table.splitlines() if row.startswith("| 4b-512 ")]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[2:5] == ["60", "30", "2.00"]
    assert cells[6] == "40.0% (aim 45%)"
    assert cells[-1] == "1.50 (aim within 25%)"
    systems["mar"] = training(20.0, 0.50, 40.0)
    systems["st"] = {"error": "OutOfMemoryError"}
    table = markdown(steps, ["train-4b-512"])
    (line,) = [row for row in table.splitlines() if row.startswith("| 4b-512 ")]
    assert "aim" not in line
    assert "| - |" in line


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_rehearsal_on_the_cpu_does_every_step(tmp_path):
    """Under three minutes on an idle machine; the limit is for busy ones."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONPATH": str(ROOT / "src"),
        "PATH": _without_driver(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "benchmarks/gpu.py", "--tiny", "--out", str(tmp_path / "out")],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    out = tmp_path / "out" / "cpu-tiny"
    records = {step.name: json.loads((out / f"{step.name}.json").read_text()) for step in STEPS}
    assert {name: record["status"] for name, record in records.items()} == dict.fromkeys(records, "done"), (
        done.stdout
    )
    tests = records["tests"]["result"]
    assert tests["passed"] > 20
    assert not tests["failed"]
    systems = records["train-4b-512"]["result"]["systems"]
    assert all(systems[name]["rows_per_second"] > 0 for name in ("mar", "st"))
    encoded = records["encode-4b-512"]["result"]["systems"]
    assert set(encoded) == {"mar", "st:32", "st:128"}
    assert encoded["mar"]["cosine_gap"] < 1e-3
    stages = records["mar-small-gpu"]["result"]["stages"]
    assert len(stages) == 7
    assert "its scores mean nothing" in (out / "gpu.md").read_text()


def _without_driver(folder):
    """A search path whose `nvidia-smi` fails, so that a machine with a GPU rehearses, too."""
    tool = folder / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\nexit 1\n")
    tool.chmod(0o755)
    return f"{tool.parent}{os.pathsep}{os.environ['PATH']}"
