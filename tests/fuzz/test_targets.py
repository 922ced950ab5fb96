"""Every target takes its seeds and some changed inputs; a broken one is reported with its input."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.fuzz import engine
from tests.fuzz.mutate import mutated

ROOT = Path(__file__).parents[2]

#: These run kernels that are compiled with sanitizers, in a process of their own.
SANITIZED = [name for name in engine.names() if hasattr(engine.module(name), "missing")]


@pytest.mark.parametrize("name", [name for name in engine.names() if name not in SANITIZED])
def test_changed_inputs_are_accepted_or_refused(name: str, tmp_path: Path) -> None:
    outcome = engine.run(engine.module(name).prepare(tmp_path), cases=60, seed=1)
    assert outcome.accepted > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", SANITIZED)
def test_kernels_stay_within_their_memory(name: str) -> None:
    reason = engine.module(name).missing()
    if reason:
        pytest.skip(reason)
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", name, "--seconds", "60", "--cases", "500", "--seed", "1"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "left out" not in done.stdout


def test_inputs_that_break_a_target_are_found() -> None:
    def check(data: bytes) -> str:
        assert b"!" not in data
        if not data:
            raise ValueError("empty")
        return "read"

    target = engine.Target([b'{"a": 1}'], check, (ValueError,), words=(b"!",))
    with pytest.raises(engine.FoundError, match="AssertionError") as error:
        engine.run(target, cases=5000)
    assert b"!" in error.value.data


def test_a_refusal_of_several_lines_and_a_slow_case_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(data: bytes) -> str:
        raise ValueError("two\nlines")

    with pytest.raises(engine.FoundError, match="several lines"):
        engine.run(engine.Target([b""], refuses, (ValueError,)), cases=1)
    monkeypatch.setattr(engine, "PATIENCE", 0.05)

    def slow(data: bytes) -> str:
        while True:
            pass

    with pytest.raises(engine.FoundError, match=r"took more than 0\.05 s of processor time"):
        engine.run(engine.Target([b""], slow, (ValueError,)), cases=1)
    monkeypatch.setattr(engine, "HANG", 0.05)
    hangs = engine.Target([b""], lambda data: str(time.sleep(20)), (ValueError,))
    with pytest.raises(engine.FoundError, match=r"took more than 0\.05 s$"):
        engine.run(hangs, cases=1)


def test_the_same_seed_changes_inputs_in_the_same_way() -> None:
    def gathered(seed: int) -> list[bytes]:
        inputs: list[bytes] = []

        def check(data: bytes) -> str:
            inputs.append(data)
            return "read"

        seeds = [b'{"a": [1, 2, {"b": "c"}], "d": null}', b"\x00\x01text"]
        engine.run(engine.Target(seeds, check), cases=300, seed=seed)
        return inputs

    first = gathered(1)
    assert first == gathered(1)
    assert first != gathered(2)
    assert len(set(first)) > 200


def test_the_name_of_a_file_is_kept() -> None:
    import random

    values = random.Random(0)
    seeds = [b"a/b.json\n" + b'{"x": 1}', b"c.npy\n\x93NUMPY"]
    for _ in range(300):
        assert mutated(seeds[0], values, seeds, named=True).startswith(b"a/b.json\n")


def test_the_input_of_a_process_that_died_is_kept(tmp_path: Path) -> None:
    record = engine.Record(tmp_path / "input")
    code = (
        "import os, sys; from pathlib import Path; from tests.fuzz import engine\n"
        f"record = engine.Record(Path({str(tmp_path / 'input')!r}), create=False)\n"
        "def check(data):\n"
        "    if data == b'die': os.kill(os.getpid(), 9)\n"
        "    return 'read'\n"
        "engine.run(engine.Target([b'live', b'die'], check), cases=0, record=record)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False)
    assert done.returncode == -9
    assert record.get() == (2, b"die")
