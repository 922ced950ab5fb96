"""The loop of examples/loop: killed at every step it ends the same, and no text leaves the machine."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import rule_judges
import yaml
from tests.medteb_mteb.curation.diseases import DISEASES
from tests.medteb_mteb.curation.loop.conftest import Handler, serving, write_month

ROOT = Path(__file__).resolve().parents[4]
MONTHS = ("2026-10", "2026-11")
#: What may differ: when and how long a step ran, who asked for an answer, and what only helps to continue.
OTHER = ("step.json", "provenance.json", "README.md", ".lock", "slices.json")


@pytest.fixture
def proxy():
    """A proxy that records every request: its address and the requests."""

    class Recorder(Handler):
        def record(self):
            asked.append(f"{self.command} {self.path}")
            self.send_error(502)

        do_GET = do_POST = do_CONNECT = do_HEAD = record  # noqa: N815 -- names of the base class

    asked = []
    with serving(Recorder) as address:
        yield address, asked


@pytest.fixture
def loop(tmp_path, proxy):
    """Begins a loop in a folder, always the same one: `loop() -> a function that starts a month`."""
    address, _ = proxy
    environment = {
        **{key: value for key, value in os.environ.items() if key.lower() != "no_proxy"},
        **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), address),
        "PYTHONPATH": str(ROOT / "src"),
        "HF_HUB_OFFLINE": "0",  # a download would be recorded
    }
    folder = tmp_path / "loop"
    with rule_judges.serving(rule_judges.Endpoint()) as url:

        def begin():
            shutil.copytree(ROOT / "examples" / "loop", folder)
            content = yaml.safe_load((folder / "loop.yaml").read_text(encoding="utf-8"))
            for judge in content["judges"]:
                judge["base_url"] = url
            steps = {step["step"]: step for step in content["steps"]}
            steps["gate"] |= {"better": None, "margin": 0.9}  # so few queries show nothing
            recipe = yaml.safe_load((folder / "train.yaml").read_text(encoding="utf-8"))
            for stage in recipe["stages"]:
                stage |= {"batch_size": 4, "epochs": 1}
            steps["train"]["recipe"] = recipe
            (folder / "loop.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
            for number, month in enumerate(MONTHS):
                write_month(folder / "new", month, DISEASES[number::2])
            return start

        def start(month):
            build = ["-m", "medteb_mteb.cli", "build", "loop.yaml", "--set", f"month={month}"]
            command = [sys.executable, *build]
            return subprocess.Popen(command, cwd=folder, env=environment, text=True, stderr=subprocess.PIPE)

        yield begin


def finish(process):
    """Wait for a month that is not killed; return the names of its steps."""
    _, stderr = process.communicate()
    assert process.returncode == 0, stderr
    return [line.split()[1] for line in stderr.splitlines() if line.startswith("[") and "/" in line]


def kill_at(process, step):
    """Kill a month as soon as it begins a step; one that was finished before may be passed."""
    for line in process.stderr:
        if line.startswith("[") and line.split()[1:] == [step]:
            process.send_signal(signal.SIGKILL)
            break
    process.stderr.close()
    return process.wait()


def results(folder):
    """What the loop has made: slices, models, verdicts, releases."""
    files = [
        path
        for pattern in ("live/**/*", "months/*/*/**/*", "releases/*")
        for path in sorted(folder.glob(pattern))
        if path.is_file() and path.name not in OTHER and "teacher-store" not in path.parts
    ]
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
    links = {path.name: os.readlink(path) for path in (folder / "releases").iterdir()}
    return found, links


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_a_kill_at_each_step_changes_nothing_and_no_text_is_sent(loop, proxy, tmp_path):
    start = loop()
    steps = [finish(start(month)) for month in MONTHS][-1]
    assert os.readlink(tmp_path / "loop" / "releases" / "current") == "2026-11-2"
    whole = tmp_path / "loop"
    whole.rename(tmp_path / "whole")  # paths are part of what a step depends on
    start = loop()
    finish(start(MONTHS[0]))
    for step in steps:
        assert kill_at(start(MONTHS[1]), step) == -signal.SIGKILL
    finish(start(MONTHS[1]))
    (expected, links), (found, others) = results(tmp_path / "whole"), results(tmp_path / "loop")
    assert links == others
    assert expected.keys() == found.keys()
    assert [name for name in expected if expected[name] != found[name]] == []
    assert proxy[1] == []
