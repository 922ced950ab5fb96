"""The kinds of index, registered by a decorator; each module of `kinds/` holds one."""

from __future__ import annotations

import inspect
from graphlib import TopologicalSorter
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, TypeVar

from mar_st.index.errors import IndexingError
from mar_st.index.kind import IndexKind

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["AUTO", "check_kind", "kind", "kind_of", "registered"]

K = TypeVar("K", bound=IndexKind)

#: Chooses a kind by measuring on a sample.
AUTO = "auto"

#: The folder whose modules register the kinds.
_FOLDER = f"{__package__}.kinds"

_CLASSES: dict[str, type[IndexKind]] = {}
#: The kind that each is listed after.
_AFTER: dict[str, str] = {}


def kind(name: str, *, after: str = "") -> Callable[[type[K]], type[K]]:
    """Register a class as the kind of index of a name.

    Args:
        name: Name of the kind, as `mar index build --kind` takes it.
        after: The kind that it is listed and measured after, a simpler one.

    Raises:
        ValueError: There is another kind of that name, or its module is called otherwise: the command line
            lists the kinds by their modules, without importing them.
        TypeError: The class does not say how it is built or what memory it needs.
    """

    def register(cls: type[K]) -> type[K]:
        if name in _CLASSES or name == AUTO:
            other = _CLASSES[name].__module__ if name in _CLASSES else __name__
            raise ValueError(f"There are two kinds of index {name!r}: {other}, {cls.__module__}.")
        home, _, module = cls.__module__.rpartition(".")
        if home == _FOLDER and module.replace("_", "-") != name:
            raise ValueError(f"The kind of index {name!r} belongs into a module of its name, not {module!r}.")
        if inspect.isabstract(cls):
            missing = ", ".join(sorted(cls.__abstractmethods__))
            raise TypeError(f"Kind of index {name!r}: {cls.__name__} has to define {missing}.")
        cls.kind = name
        _CLASSES[name], _AFTER[name] = cls, after
        return cls

    return register


def registered() -> dict[str, type[IndexKind]]:
    """Return the classes of all kinds by name, from simple to complicated."""
    for module in iter_modules(import_module(_FOLDER).__path__, f"{_FOLDER}."):
        import_module(module.name)
    order = TopologicalSorter({name: {_AFTER[name]} for name in sorted(_CLASSES)}).static_order()
    return {name: _CLASSES[name] for name in order if name in _CLASSES}


def kind_of(name: str) -> type[IndexKind]:
    """Return the class of a kind.

    Raises:
        IndexingError: There is no such kind.
    """
    if name not in _CLASSES and name not in registered():
        raise IndexingError(f"Kinds of index are {', '.join(registered())} (or {AUTO}); got {name!r}.")
    return _CLASSES[name]


def check_kind(name: str) -> None:
    """Make sure that a name is that of a kind, or `auto`.

    Raises:
        IndexingError: It is not.
    """
    if name != AUTO:
        kind_of(name)
