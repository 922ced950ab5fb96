"""mteb without this package, and what registration may change of it."""

from __future__ import annotations

from importlib import import_module

import mteb
import pytest
from mteb.cache import ResultCache
from mteb.models import ModelMeta

from medteb_mteb import plugin as registry


def snapshot() -> dict:
    """mteb's state as far as this package may change it."""
    tasks = import_module("mteb.get_tasks")
    return {
        "tasks": dict(tasks._TASKS_REGISTRY),
        "list": tasks.TASK_LIST,
        "similar": {key: list(value) for key, value in tasks._SIMILAR_TASKS.items()},
        "models": dict(import_module("mteb.models.model_implementations").MODEL_REGISTRY),
        "lookup": id(import_module("mteb.models.get_model_meta").MODEL_REGISTRY),
        "hub": vars(ModelMeta)["_from_hub"],
        "merge": import_module("mteb.evaluate")._requires_merge,
        "benchmarks": [benchmark.name for benchmark in mteb.get_benchmarks()],
        "module": set(vars(import_module("mteb.benchmarks.benchmarks"))),
        "results": vars(ResultCache)["_get_unsubmitted_results"],
        "save": vars(ResultCache)["save_to_cache"],
        "submission": vars(import_module("mteb.cache.result_cache").CopyResultsAction)["do"],
    }


@pytest.fixture
def stock():
    """mteb as it is without this package, for the time of a test."""
    registry.unregister()
    yield
    registry.unregister()
    registry.register()


@pytest.fixture(name="snapshot")
def _snapshot():
    return snapshot
