"""Tiny hand-written editions that replace the packaged ones."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pytest
from tests.conftest import WRITERS
from tests.medteb_mteb.tasks.snapshots import write_snapshot

from medteb_mteb.cli import main
from medteb_mteb.editions import write_manifest

REPOSITORY = Path(__file__).resolve().parents[2]

TYPES = {"MedTEBRetrieval": "Retrieval", "MedTEBReranking": "Reranking", "MedTEBSTS": "STS"}


def write_edition(root: Path, task: str, **fields) -> None:
    WRITERS[TYPES[task]](root / task)
    fields = {"name": "mini", "version": "0.0.1", "licence": "CC-BY-4.0", "counts": {}} | fields
    write_manifest(root / task, task=task, **fields)


@pytest.fixture
def data_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A MEDTEB_DATA folder with a tiny edition of each packaged task."""
    root = tmp_path / "data"
    for task in TYPES:
        write_edition(root, task)
    monkeypatch.setenv("MEDTEB_DATA", str(root))
    return root


@pytest.fixture
def snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Writes the named tasks of English MedTEB."""

    def write(*names):
        folder = write_snapshot(tmp_path / "data", list(names))
        monkeypatch.setenv("MEDTEB_DATA", str(tmp_path / "data"))
        return folder

    return write


@pytest.fixture
def no_hub(monkeypatch):
    """Any question to the Hub fails the test."""
    asked = []

    def ask(*args, **kwargs):
        asked.append(args or kwargs)
        raise AssertionError(f"asked the Hub for {args or kwargs}")

    module = import_module("mteb.models.model_meta")
    questions = ("_repo_exists", "_get_json_from_hub", "_get_repo_commits", "get_safetensors_metadata")
    for name in (*questions, "model_info"):
        monkeypatch.setattr(module, name, ask)
    yield
    assert not asked


@pytest.fixture
def medteb(monkeypatch, capsys):
    """Runs the command in this process: `medteb("run", ...) -> (exit code, stdout, stderr)`."""

    def call(*args):
        monkeypatch.setattr(sys, "argv", ["medteb", *map(str, args)])
        with pytest.raises(SystemExit) as stop:
            main()
        out, err = capsys.readouterr()
        return stop.value.code or 0, out, err

    return call
