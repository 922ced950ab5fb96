"""Threads that stand for the processes of a group."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

T = TypeVar("T")


class Processes:
    """Two threads that exchange tensors by the functions of `torch.distributed`."""

    world = 2

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._own = threading.local()
        self._sent: list[torch.Tensor] = [torch.empty(0)] * self.world
        self._barrier = threading.Barrier(self.world, timeout=60)
        functions = {
            "is_initialized": lambda: True,
            "get_world_size": lambda: self.world,
            "get_rank": self.rank,
            "all_gather": self._all_gather,
            "all_reduce": self._all_reduce,
        }
        for name, function in functions.items():
            patch.setattr(torch.distributed, name, function)

    def rank(self) -> int:
        """Return the number of this thread."""
        return int(self._own.rank)

    def run(self, work: Callable[[int], T]) -> list[T]:
        """Call a function with each rank, at the same time; return the results."""

        def start(rank: int) -> T:
            self._own.rank = rank
            return work(rank)

        with ThreadPoolExecutor(self.world) as pool:
            return list(pool.map(start, range(self.world)))

    def exchange(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Send a tensor; return those of all threads."""
        self._sent[self.rank()] = tensor.detach().clone()
        self._barrier.wait()
        received = list(self._sent)
        self._barrier.wait()
        return received

    def _all_gather(self, parts: list[torch.Tensor], tensor: torch.Tensor) -> None:
        for part, received in zip(parts, self.exchange(tensor), strict=True):
            part.copy_(received)

    def _all_reduce(self, tensor: torch.Tensor) -> None:
        tensor.copy_(torch.stack(self.exchange(tensor)).sum(dim=0))
