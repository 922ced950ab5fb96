"""The MedTEB benchmark as an mteb plugin: Chinese medical retrieval, reranking and synonym STS.

Importing this package registers its tasks, benchmarks and models with mteb: at once if mteb has been
imported already, otherwise as soon as it is. The import itself is cheap; every name below is loaded on
first use.
"""

from __future__ import annotations

from medteb_mteb import _autoload

TYPE_CHECKING = False  # importing typing would cost more than everything else here
if TYPE_CHECKING:
    from typing import Any

    from medteb_mteb.plugin.registry import (
        RegistryError,
        register,
        register_tasks,
        unregister,
        unregister_tasks,
    )

    __version__: str

__all__ = ["RegistryError", "__version__", "register", "register_tasks", "unregister", "unregister_tasks"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version  # lazy: importlib.metadata

        return version("medteb")
    if name not in __all__:
        raise AttributeError(
            f"module 'medteb_mteb' has no attribute {name!r}; it offers {', '.join(__all__)}"
        )
    from medteb_mteb.plugin import registry  # lazy: yaml

    return getattr(registry, name)


def __dir__() -> list[str]:
    return sorted(__all__)


def _register() -> None:
    from medteb_mteb.plugin.registry import register  # lazy: yaml

    register()


_autoload.arm(_register)
