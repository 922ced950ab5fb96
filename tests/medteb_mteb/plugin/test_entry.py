"""The entry point for versions of mteb that know plugins."""

from __future__ import annotations

import sys
from importlib import import_module
from types import SimpleNamespace

import pytest

from medteb_mteb import plugin as registry
from medteb_mteb.plugin import plugin


@pytest.fixture
def mteb_with_plugins(monkeypatch):
    monkeypatch.setitem(sys.modules, "mteb.plugins", SimpleNamespace(Plugin=SimpleNamespace))


def test_the_plugin_has_all_that_registration_adds(stock, snapshot, mteb_with_plugins):
    before = snapshot()
    registry.register()
    after = snapshot()
    given = plugin()
    for kind, objects in (("tasks", [*given.tasks]), ("models", [*given.models])):
        added = {name: one for name, one in after[kind].items() if name not in before[kind]}
        named = {one.metadata.name if kind == "tasks" else one.name: one for one in objects}
        assert named == added
        assert len(named) == len(objects)
    added = sorted(set(after["benchmarks"]) - set(before["benchmarks"]))
    assert sorted(benchmark.name for benchmark in given.benchmarks) == added


def test_what_mteb_took_from_the_plugin_is_not_registered_twice(stock, mteb_with_plugins, monkeypatch):
    given, tasks = plugin(), import_module("mteb.get_tasks")
    models = import_module("mteb.models.model_implementations").MODEL_REGISTRY
    task, model = given.tasks[0], given.models[0]
    with monkeypatch.context() as patch:
        patch.setitem(tasks._TASKS_REGISTRY, task.metadata.name, task)
        patch.setattr(tasks, "TASK_LIST", (*tasks.TASK_LIST, task))
        patch.setitem(models, model.name, model)
        registry.register()
        assert tasks.TASK_LIST.count(task) == 1
        registry.unregister()
        assert tasks._TASKS_REGISTRY[task.metadata.name] is task
        assert models[model.name] is model
