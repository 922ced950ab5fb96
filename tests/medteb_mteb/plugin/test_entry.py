"""Registration in mteb without this package, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SCRIPT = """
import sys, warnings
from importlib import import_module
from types import SimpleNamespace
import mteb
sys.modules["mteb.plugins"] = SimpleNamespace(Plugin=SimpleNamespace)  # of versions that know plugins
tasks = import_module("mteb.get_tasks")
models = import_module("mteb.models.model_implementations").MODEL_REGISTRY

def state():
    named = {name: id(one) for name, one in (*tasks._TASKS_REGISTRY.items(), *models.items())}
    return named, tasks.TASK_LIST, sorted(one.name for one in mteb.get_benchmarks())

before = state()
assert "MedTEBSTS" not in tasks._TASKS_REGISTRY
models["medteb/bm25-jieba"] = models["mteb/baseline-bm25s"]  # a taken name: nothing is changed
with warnings.catch_warnings(record=True) as caught:
    import medteb_mteb
assert any("'medteb/bm25-jieba' is registered with mteb already" in str(one.message) for one in caught)
del models["medteb/bm25-jieba"]
assert state() == before

from medteb_mteb.plugin import plugin, register
given = plugin()
task, model = given.tasks[0], given.models[0]  # mteb took them from the entry point
tasks._TASKS_REGISTRY[task.metadata.name] = task
tasks.TASK_LIST = (*tasks.TASK_LIST, task)
models[model.name] = model
register()
assert tasks.TASK_LIST.count(task) == 1
after = state()
names = {one.metadata.name for one in given.tasks} | {one.name for one in given.models}
assert names == set(after[0]) - set(before[0])
assert {one.name for one in given.benchmarks} == set(after[2]) - set(before[2])
register()
assert state() == after
print("done")
"""


@pytest.mark.slow
def test_registration_adds_all_or_nothing_and_each_once(tmp_path):
    environment = {**os.environ, "MEDTEB_AUTOLOAD": "0", "HF_HUB_OFFLINE": "1"}
    args = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(args, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stdout == "done\n", done.stderr
