"""The generated task files for mteb."""

from __future__ import annotations

import importlib.util
from pathlib import Path

HERE = Path(__file__).parents[2] / "contrib" / "mteb"


def _load(path: Path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_files_are_the_generated_ones_and_mteb_accepts_their_metadata():
    files = _load(HERE / "make_tasks.py").all_files()
    written = {path.relative_to(HERE / "tasks").as_posix(): path for path in (HERE / "tasks").rglob("*.py")}
    assert {name.removeprefix("tasks/"): text for name, text in files.items()} == {
        name: path.read_text() for name, path in written.items()
    }
    for name, path in written.items():
        classes = [
            one for one in vars(_load(path)).values() if isinstance(one, type) and one.__module__ == path.stem
        ]
        tasks = [one for one in classes if hasattr(one, "metadata")]
        assert tasks, name
        assert all(one.metadata.bibtex_citation is not None and one.metadata.revision for one in tasks), name
