"""The steps that a pipeline may have, registered by a decorator; each module of `steps/` holds one."""

from __future__ import annotations

import inspect
from functools import lru_cache
from graphlib import TopologicalSorter
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

from pydantic import PlainValidator, TypeAdapter
from pydantic_core import core_schema

from medteb_mteb.curation.pipeline.base import PipelineStep

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

__all__ = ["AnyStep", "registered", "step"]

S = TypeVar("S", bound=PipelineStep)

#: The folder whose modules register the steps.
_FOLDER = f"{__package__}.steps"

#: Classes by the names that a pipeline file gives them.
_CLASSES: dict[str, type[PipelineStep]] = {}
#: The step that each is listed after.
_LISTED_AFTER: dict[str, str] = {}


def step(name: str, *, after: str = "") -> Callable[[type[S]], type[S]]:
    """Register a class as the step of a name.

    Args:
        name: Name of the step in a pipeline file (`step: NAME`).
        after: The step after which it is listed; default: among the first.

    Raises:
        ValueError: Another step has that name.
        TypeError: The class does not define what it writes or how it runs.
    """

    def register(cls: type[S]) -> type[S]:
        if name in _CLASSES:
            raise ValueError(f"There are two steps {name!r}: {_CLASSES[name].__module__}, {cls.__module__}.")
        if inspect.isabstract(cls) or not hasattr(cls, "WRITES"):
            raise TypeError(f"Step {name!r}: {cls.__name__} must define 'WRITES' and 'run'.")
        _CLASSES[name], _LISTED_AFTER[name] = cls, after
        return cls

    return register


def registered() -> dict[str, type[PipelineStep]]:
    """Return the classes of all steps by name, in the order in which messages list them."""
    for module in iter_modules(import_module(_FOLDER).__path__, f"{_FOLDER}."):
        import_module(module.name)
    order = TopologicalSorter({name: {_LISTED_AFTER[name]} for name in sorted(_CLASSES)}).static_order()
    return {name: _CLASSES[name] for name in order if name in _CLASSES}


def _validated(value: Any) -> Any:
    return _validator(tuple(registered().items())).validate_python(value)


#: A field that takes any registered step; they are looked up when it is validated.
AnyStep: TypeAlias = Annotated[PipelineStep, PlainValidator(_validated)]


class _Tagged:
    """A union of classes, distinguished by their key `step`."""

    def __init__(self, classes: dict[str, type[PipelineStep]]) -> None:
        self.classes = classes

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        del source
        choices = {name: handler.generate_schema(cls) for name, cls in self.classes.items()}
        return core_schema.tagged_union_schema(choices, discriminator="step", from_attributes=True)


@lru_cache(maxsize=2)
def _validator(classes: tuple[tuple[str, type[PipelineStep]], ...]) -> TypeAdapter[PipelineStep]:
    return TypeAdapter(Annotated[Any, _Tagged(dict(classes))])
