"""The kinds of index, registered by a decorator; each module of `kinds/` holds one."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from mar_st.files.registered import Registered
from mar_st.index.errors import IndexingError
from mar_st.index.kind import IndexKind

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["AUTO", "check_kind", "kind", "kind_of", "registered"]

K = TypeVar("K", bound=IndexKind)

#: Chooses a kind by measuring on a sample.
AUTO = "auto"

INDEX_KINDS: Registered[IndexKind] = Registered(f"{__package__}.kinds", "Kind of index", reserved=(AUTO,))


def kind(name: str, *, after: str = "") -> Callable[[type[K]], type[K]]:
    """Register a class as the kind of index of a name.

    Args:
        name: Name of the kind, as `mar index build --kind` takes it, and of its module.
        after: The simpler kind that is listed and measured before it.

    Raises:
        ValueError: The name is taken, or differs from the module's.
        TypeError: The class does not define how it is built or how much memory it needs.
    """

    def register(cls: type[K]) -> type[K]:
        INDEX_KINDS.add(name, cls, after)
        cls.kind = name
        return cls

    return register


def registered() -> dict[str, type[IndexKind]]:
    """Return the classes of all kinds by name, from simple to complicated."""
    return INDEX_KINDS.classes()


def kind_of(name: str) -> type[IndexKind]:
    """Return the class of a kind.

    Raises:
        IndexingError: No kind of index has this name.
    """
    kind_class = INDEX_KINDS.get(name)
    if kind_class is None:
        raise IndexingError(f"Kinds of index are {', '.join(registered())} (or {AUTO}); got {name!r}.")
    return kind_class


def check_kind(name: str) -> None:
    """Make sure that a name is that of a kind, or `auto`.

    Raises:
        IndexingError: The name is neither.
    """
    if name != AUTO:
        kind_of(name)
