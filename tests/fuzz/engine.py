"""Runs one target: changes inputs, counts what becomes of them, and keeps the input that breaks it."""

from __future__ import annotations

import importlib
import mmap
import pkgutil
import random
import re
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.fuzz import targets
from tests.fuzz.mutate import mutated

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: Seconds of processor time that one case may take (a busy machine is not the case's fault), and in all.
PATIENCE, HANG = 10, 120

#: Inputs that the engine keeps for further changes, and the largest of them.
MAX_POOL, MAX_INPUT_BYTES = 2000, 2**20

#: Share of the cases that are changed further; most inputs of which something new becomes are broken already.
_POOL_SHARE = 0.4

_VARIABLE = re.compile(r"'[^']*'|\"[^\"]*\"|[0-9a-f]{8,}|\d+|/\S+")


@dataclass
class Target:
    """One kind of input.

    Attributes:
        seeds: Valid inputs, and others that are worth beginning with.
        check: Reads an input; returns what became of it in a word or two, or raises one of `refusals`.
        refusals: Exceptions that say that an input is not accepted.
        named: The first line of an input names a file, and is kept.
        words: Bytes that such inputs are made of.
        close: Called at the end; checks what holds for all cases together.
    """

    seeds: list[bytes]
    check: Callable[[bytes], str]
    refusals: tuple[type[Exception], ...] = ()
    named: bool = False
    words: tuple[bytes, ...] = ()
    close: Callable[[], None] = lambda: None


class FoundError(Exception):
    """An input that breaks its target."""

    def __init__(self, data: bytes, reason: BaseException) -> None:
        super().__init__(f"{type(reason).__name__}: {reason}")
        self.data = data


class _SlowError(BaseException):
    """A case that takes too long; nothing that a target raises is taken for it."""


@dataclass
class Outcome:
    """Outcome of a run: counts of its cases."""

    cases: int = 0
    accepted: int = 0
    refused: int = 0
    labels: Counter[str] = field(default_factory=Counter)


def names() -> list[str]:
    """Names of all targets."""
    return sorted(module_info.name for module_info in pkgutil.iter_modules(targets.__path__))


def module(name: str) -> Any:
    """The module of a target."""
    return importlib.import_module(f"tests.fuzz.targets.{name}")


class Record:
    """The input that is being read, in a file that outlives a process that is killed by a signal."""

    def __init__(self, path: Path, *, create: bool = True) -> None:
        if create:
            path.write_bytes(bytes(MAX_INPUT_BYTES + 16))
        with path.open("r+b") as stream:
            self._map = mmap.mmap(stream.fileno(), 0)

    def set(self, number: int, data: bytes) -> None:
        """Note the input of a case."""
        self._map[:16] = number.to_bytes(8, "little") + len(data).to_bytes(8, "little")
        self._map[16 : 16 + len(data)] = data

    def get(self) -> tuple[int, bytes]:
        """Number of the case, and its input."""
        number, size = (int.from_bytes(self._map[at : at + 8], "little") for at in (0, 8))
        return number, self._map[16 : 16 + size]


def one(target: Target, data: bytes, outcome: Outcome) -> str:
    """Give one input to a target.

    Returns:
        What became of it, without names and numbers.

    Raises:
        FoundError: It breaks the target.
    """
    outcome.cases += 1
    signal.setitimer(signal.ITIMER_PROF, PATIENCE)
    signal.setitimer(signal.ITIMER_REAL, HANG)
    try:
        label = target.check(data)
        outcome.accepted += 1
    except target.refusals as error:
        if "\n" in str(error).strip():
            raise FoundError(data, AssertionError(f"an error of several lines: {error}")) from error
        label = f"{type(error).__name__}: {error}"
        outcome.refused += 1
    except (Exception, _SlowError) as error:
        raise FoundError(data, error) from error
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
    label = _VARIABLE.sub("*", label)[:60]
    outcome.labels[label] += 1
    return label


def run(
    target: Target,
    *,
    cases: int | None = None,
    seconds: float | None = None,
    seed: int = 0,
    record: Record | None = None,
) -> Outcome:
    """Give a target its seeds, then changed inputs.

    An input of which something new becomes is changed further.

    Args:
        target: The target.
        cases: Changed inputs at most.
        seconds: Time at most.
        seed: Of the changes.
        record: Where each input is noted.

    Raises:
        FoundError: An input breaks the target.
    """
    until = None if seconds is None else time.monotonic() + seconds
    before = {kind: signal.signal(kind, _slow) for kind in (signal.SIGPROF, signal.SIGALRM)}
    values, outcome, pool = random.Random(seed), Outcome(), list[bytes]()
    number = -len(target.seeds)
    try:
        while (cases is None or number < cases) and (until is None or time.monotonic() < until):
            if number < 0:
                data = target.seeds[number]
            else:
                source = values.choice(pool if pool and values.random() < _POOL_SHARE else target.seeds)
                data = mutated(source, values, target.seeds, named=target.named, words=target.words)
            number += 1
            if len(data) > MAX_INPUT_BYTES:
                continue
            if record is not None:
                record.set(outcome.cases + 1, data)
            fresh = len(outcome.labels)
            label = one(target, data, outcome)
            if (
                number > 0
                and len(outcome.labels) > fresh
                and outcome.labels[label] == 1
                and len(pool) < MAX_POOL
            ):
                pool.append(data)
        target.close()
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
    return outcome


def _slow(kind: int, _: Any) -> None:
    if kind == signal.SIGPROF:
        raise _SlowError(f"the case took more than {PATIENCE} s of processor time")
    raise _SlowError(f"the case took more than {HANG} s")
