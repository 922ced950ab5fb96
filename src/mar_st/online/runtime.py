"""Base of the runtimes that compute an exported graph, and their registry."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, TypeVar

from mar_st.errors import MarError
from mar_st.files import one_line
from mar_st.files.registered import Registered
from mar_st.kernels.processor import processors
from mar_st.online.protocol import EncoderError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy as np

    from mar_st.online.listing import ExportVariant


class Runtime(ABC):
    """A loaded graph; one call at a time.

    Args:
        path: File of the graph.
        options: Settings that the export chose (`ExportVariant.options`).
        threads: Threads per call.

    Raises:
        EncoderError: The runtime cannot run on this machine.
    """

    @abstractmethod
    def __init__(self, path: Path, options: dict[str, Any], threads: int) -> None: ...

    @abstractmethod
    def run(self, inputs: dict[str, np.ndarray]) -> np.ndarray:
        """Return the vectors of a pack, float32 `(texts or more, dim)`; valid until the next call."""


R = TypeVar("R", bound=Runtime)

RUNTIMES: Registered[Runtime] = Registered(f"{__package__}.runtimes", "Runtime")


def runtime(name: str) -> Callable[[type[R]], type[R]]:
    """Register a class as the runtime of a name.

    Args:
        name: Name of the runtime, as in `ExportVariant.runtime`, and of its module.

    Raises:
        ValueError: Another runtime has this name, or the module has another name.
        TypeError: The class lacks a method.
    """

    def register(cls: type[R]) -> type[R]:
        RUNTIMES.add(name, cls)
        return cls

    return register


def open_runtime(folder: Path, variant: ExportVariant, threads: int | None) -> Runtime:
    """Load the graph of a variant.

    Raises:
        EncoderError: The runtime is not known, or cannot load the graph.
        PackageError: The runtime is not installed.
    """
    runtime_class = RUNTIMES.get(variant.runtime)
    if runtime_class is None:
        known = ", ".join(RUNTIMES.names())
        raise EncoderError(f"{variant.graph} is for {variant.runtime!r}; known are {known}.")
    path = folder / variant.graph
    try:
        return runtime_class(path, variant.options, threads or processors())
    except MarError:
        raise
    except Exception as error:  # the runtimes have exceptions of their own for damaged and unsupported graphs
        raise EncoderError(
            f"{variant.runtime} cannot load {path} ({type(error).__name__}: {one_line(error)}). Export the "
            "encoder again, or choose another variant."
        ) from error
