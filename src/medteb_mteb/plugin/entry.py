"""Entry point for versions of mteb that know the entry point group `mteb.plugins`.

Released versions of mteb do not know the group; for these the `.pth` file and `registry.register` do the
same. `contrib/mteb` holds the patch that adds it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["plugin"]


def plugin() -> Any:
    """Return mteb's `Plugin` with the tasks, models and benchmarks of this package.

    `registry.register` makes all other changes to mteb, such as aliases.
    """
    from medteb_mteb.models.metas import MODELS  # lazy: mteb
    from medteb_mteb.tasks import TASKS  # lazy: mteb
    from medteb_mteb.tasks.benchmarks import BENCHMARKS  # lazy: mteb

    make = import_module("mteb.plugins").Plugin
    return make(tasks=TASKS, models=MODELS, benchmarks=tuple(BENCHMARKS.values()))
