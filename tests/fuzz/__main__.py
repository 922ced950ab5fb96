"""Runs targets, each in a process of its own."""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.fuzz import engine

ROOT = Path(__file__).parents[2]
FAILURES = ROOT / "build" / "fuzz"

#: Seconds without a new case after which a process is killed (Python cannot interrupt a long call of C code),
#: and seconds until the first case (kernels may be compiled before it).
SILENT, FIRST = 60, 400


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", help="which; default all")
    parser.add_argument("--seconds", type=float, default=120, help="for all of them together")
    parser.add_argument("--cases", type=int, help="changed inputs of each at most")
    parser.add_argument("--seed", type=int, default=None, help="of the changes; default the time")
    parser.add_argument("--input", type=Path, help="give this input to the target, once")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = set(options.targets) - set(engine.names())
    if unknown:
        parser.error(f"no target {', '.join(unknown)}; there are {', '.join(engine.names())}")
    if options.seed is None:
        options.seed = time.time_ns() % 10**9
    chosen = options.targets or engine.names()
    if options.child is not None:
        return _child(chosen[0], options)
    if options.input is not None and len(chosen) != 1:
        parser.error("--input needs one target")
    print(f"seed {options.seed}, {options.seconds:g} s for {len(chosen)} targets", flush=True)
    results = [_run(name, options, options.seconds / len(chosen)) for name in chosen]
    return 0 if all(results) else 1


def _run(name: str, options: argparse.Namespace, seconds: float) -> bool:
    """Run a target in a process of its own, and keep its last input if it fails; return True if it passes."""
    reason = getattr(engine.module(name), "missing", lambda: None)()
    if reason:
        print(f"{name:12} left out: {reason}", flush=True)
        return True
    with tempfile.TemporaryDirectory(prefix="fuzz-") as temporary:
        folder = Path(temporary)
        command = [sys.executable, "-m", "tests.fuzz", name, "--child", temporary]
        command += ["--seed", str(options.seed), "--seconds", str(seconds)]
        command += ["--cases", str(options.cases)] if options.cases is not None else []
        command += ["--input", str(options.input)] if options.input is not None else []
        extra = getattr(engine.module(name), "environment", dict)()
        record = engine.Record(folder / "input")
        with (folder / "errors").open("wb") as errors:
            process = subprocess.Popen(
                command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, env={**os.environ, **extra}
            )
            silent = _wait(process, record)
        output = process.stdout.read().decode().strip() if process.stdout else ""
        if process.returncode == 0:
            print(f"{name:12} {output}", flush=True)
            return True
        _, data = record.get()
        errors_text = (folder / "errors").read_text(errors="replace")
        place = FAILURES / f"{name}-{hashlib.sha256(data).hexdigest()[:12]}"
        FAILURES.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        why = "it took too long" if silent else f"exit status {process.returncode}"
        print(f"{name:12} FAILED ({why})\n{errors_text[-4000:]}", flush=True)
        print(f"  the input: {place}\n  again: python -m tests.fuzz {name} --input {place}", flush=True)
        return False


def _wait(process: subprocess.Popen[bytes], record: engine.Record) -> bool:
    """Wait for a process; end it, and return True, if it is silent for too long."""
    last, since = -1, time.monotonic()
    while process.poll() is None:
        time.sleep(0.05)
        number, _ = record.get()
        if number != last:
            last, since = number, time.monotonic()
        elif time.monotonic() - since > (SILENT if number else FIRST):
            process.kill()
            process.wait()
            return True
    return False


def _child(name: str, options: argparse.Namespace) -> int:
    record = engine.Record(options.child / "input", create=False)
    place = options.child / "work"
    place.mkdir()
    target = engine.module(name).prepare(place)
    began = time.monotonic()
    try:
        if options.input is not None:
            target.seeds = [options.input.read_bytes()]
            outcome = engine.run(target, cases=0, record=record)
        else:
            outcome = engine.run(
                target, cases=options.cases, seconds=options.seconds, seed=options.seed, record=record
            )
    except engine.FoundError:
        traceback.print_exc()
        return 1
    finally:
        shutil.rmtree(place, ignore_errors=True)
    took = time.monotonic() - began
    print(
        f"{outcome.cases:8} cases in {took:5.1f} s: {outcome.accepted} accepted, {outcome.refused} refused; "
        f"{len(outcome.labels)} kinds of outcome"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
