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

    from medteb_mteb.folders.tasks import task_from_folder
    from medteb_mteb.plugin import register, register_tasks

    __version__: str

_HOMES = {"register": "plugin", "register_tasks": "plugin", "task_from_folder": "folders.tasks"}

__all__ = ["__version__", "register", "register_tasks", "task_from_folder"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version  # lazy: importlib.metadata

        return version("medteb")
    if name not in _HOMES:
        raise AttributeError(
            f"module 'medteb_mteb' has no attribute {name!r}; it offers {', '.join(__all__)}"
        )
    # not importlib's function: this module is imported whenever an interpreter starts
    return getattr(__import__(f"medteb_mteb.{_HOMES[name]}", fromlist=[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


def _register() -> None:
    from medteb_mteb.plugin import register  # lazy: yaml

    register()


_autoload.arm(_register)
