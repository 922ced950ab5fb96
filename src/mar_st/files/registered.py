"""Classes that the modules of a folder register, each under the name of its module."""

from __future__ import annotations

import inspect
from graphlib import TopologicalSorter
from importlib import import_module
from pkgutil import iter_modules
from typing import Generic, TypeVar

__all__ = ["Registered"]

T = TypeVar("T")


class Registered(Generic[T]):
    """Classes by name; a new module in the folder is a new class.

    Args:
        folder: Dotted name of the folder. Its module `ivf_pq` registers the class `ivf-pq`, and no other, so
            that names can be listed, and one class found, without importing them all.
        what: Noun for a class, for messages.
        reserved: Names that no class may have.
    """

    def __init__(self, folder: str, what: str, *, reserved: tuple[str, ...] = ()) -> None:
        self.folder, self.what, self.reserved = folder, what, reserved
        self.registered: dict[str, type[T]] = {}
        self.after: dict[str, str] = {}

    def add(self, name: str, cls: type[T], after: str = "") -> None:
        """Register a class.

        Args:
            name: Its name.
            cls: The class.
            after: Name that comes before it in lists.

        Raises:
            ValueError: The name is taken, or differs from the module's.
            TypeError: The class lacks a method.
        """
        if name in self.registered or name in self.reserved:
            owner = f" by {self.registered[name].__module__}" if name in self.registered else ""
            raise ValueError(f"{self.what} {name!r}: the name is taken{owner}.")
        home, _, module = cls.__module__.rpartition(".")
        if home == self.folder and module.replace("_", "-") != name:
            raise ValueError(f"{self.what} {name!r} belongs in a module of the same name, not {module!r}.")
        if inspect.isabstract(cls):
            missing = ", ".join(sorted(getattr(cls, "__abstractmethods__", ())))
            raise TypeError(f"{self.what} {name!r}: {cls.__name__} has to define {missing}.")
        self.registered[name], self.after[name] = cls, after

    def names(self) -> tuple[str, ...]:
        """Return names by the modules of the folder, sorted; nothing but the folder itself is imported."""
        modules = iter_modules(import_module(self.folder).__path__)
        return tuple(sorted({*self.registered, *(module.name.replace("_", "-") for module in modules)}))

    def get(self, name: str) -> type[T] | None:
        """Return the class of a name, `None` if there is none; no other module is imported."""
        if name not in self.registered and name in self.names():
            import_module(f"{self.folder}.{name.replace('-', '_')}")
        return self.registered.get(name)

    def classes(self) -> dict[str, type[T]]:
        """Return all classes by name, in the order in which they are listed."""
        for name in self.names():
            self.get(name)
        order = TopologicalSorter(
            {name: {self.after[name]} for name in sorted(self.registered)}
        ).static_order()
        return {name: self.registered[name] for name in order if name in self.registered}
