"""The patch that gives mteb entry points: applied to a copy of mteb, and used by this package."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATCH = ROOT / "contrib" / "mteb" / "0001-entry-points.patch"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
ENTRY = "[mteb.plugins]\nmedteb = " + PROJECT["entry-points"]["mteb.plugins"]["medteb"] + "\n"

ASK = """
import json, sys, mteb
print(json.dumps({
    "task": type(mteb.get_task("MedExamRetrieval")).__module__,
    "benchmark": len(mteb.get_benchmark("CMIRB").tasks),
    "model": mteb.get_model_meta("medteb/mar-mini").name,
    "alias": mteb.get_model_meta("mar-mini").name,
    "replaced": type(mteb.get_task("CovidRetrieval")).__module__,
    "plugins": "mteb.plugins" in sys.modules,
    "once": [t.metadata.name for t in mteb.get_tasks()].count("MedExamRetrieval"),
}))
"""


@pytest.fixture(scope="module")
def patched(tmp_path_factory) -> Path:
    """A folder with a copy of mteb, patched, and with this package's entry point."""
    folder = tmp_path_factory.mktemp("patched")
    installed = Path(find_spec("mteb").submodule_search_locations[0])
    shutil.copytree(installed, folder / "mteb", ignore=shutil.ignore_patterns("descriptive_stats"))
    (folder / "mteb" / "descriptive_stats").symlink_to(installed / "descriptive_stats")
    environment = os.environ | {"GIT_CEILING_DIRECTORIES": str(folder.parent)}
    subprocess.run(["git", "apply", str(PATCH)], cwd=folder, check=True, env=environment)
    information = folder / "medteb_entry-0.1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: medteb-entry\nVersion: 0.1.0\n")
    (information / "entry_points.txt").write_text(ENTRY)
    return folder


def ask(path: list[Path], *command: str, **environment: str) -> str:
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path)), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, *command],
        env=variables | environment,
        capture_output=True,
        text=True,
        cwd=path[0],
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("autoload", ["0", "1"])
def test_mteb_takes_this_package_from_the_entry_point(patched, autoload):
    # with MEDTEB_AUTOLOAD=0 nothing but the entry point brings this package in
    answer = json.loads(ask([patched, ROOT / "src"], "-c", ASK, MEDTEB_AUTOLOAD=autoload).splitlines()[-1])
    assert answer == {
        "task": "medteb_mteb.tasks.tables",
        "benchmark": 10,
        "model": "medteb/mar-mini",
        "alias": "medteb/mar-mini",
        "replaced": "medteb_mteb.tasks.tables",
        "plugins": True,
        "once": 1,
    }


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_patchs_own_tests_pass(patched):
    arguments = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_plugins.py")
    assert "3 passed" in ask([patched], *arguments, MEDTEB_AUTOLOAD="0")
