"""The benchmark of judging under faults, at its smallest: its counts must add up."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "judge_faults.py"


@pytest.mark.parametrize("name", ["judge", "judge_faults"])
def test_the_endpoint_file_exists(name):
    assert importlib.import_module(name).FAULT_SERVER.is_file()


@pytest.mark.slow
def test_nothing_is_lost_or_paid_twice():
    options = "--judgements 200 --rate 0.02 --kills 0 --timeout 2 --json"
    command = [sys.executable, SCRIPT, *options.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["same_labels"]
    assert (report["lost"], report["paid_twice"], report["kills"]) == (0, 0, 0)
    assert report["paid_once"] == 200 + report["checks"]
