"""The walks of the architecture page, and the files that a command really enters.

As a script, `python walks.py OUT PACKAGE [--request] MODULE:FUNCTION ARGUMENT...` runs a command and writes
the files of a package to OUT, in the order in which their functions are first called; calls while a module is
imported do not count. With `--request` the command is `mar serve`, and only one search is recorded.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import importlib.machinery
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "concepts" / "architecture.md"


def walk(title: str) -> list[list[str]]:
    """Return the files of each row of a walk, as paths below the package; of alternatives, the first."""
    text = PAGE.read_text("utf-8")
    table = re.split(rf"\*\*`?{re.escape(title)}`?\*\*", text)[1].lstrip().split("\n\n", 1)[0]
    rows = [line.split("|")[2].partition(" or ")[0] for line in table.splitlines()[2:]]
    return [re.findall(r"`([\w/]+\.py|[\w/]+/)`", row) for row in rows]


def entered(package: str, *command: str, folder: Path, **environment: str) -> list[str]:
    """Run a command in a process of its own; return the files of the package whose functions it calls."""
    out = folder / "entered.json"
    settings = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "MEDTEB_AUTOLOAD": "0"}
    environment = {**os.environ, **settings, **environment}
    ran = subprocess.run(
        [sys.executable, __file__, str(out), package, *command],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert out.is_file(), ran.stderr[-2000:]
    return json.loads(out.read_text("utf-8"))


def used(title: str) -> set[str]:
    """Return the folders that the line below the table of a walk names."""
    text = PAGE.read_text("utf-8")
    below = re.split(rf"\*\*`?{re.escape(title)}`?\*\*", text)[1].lstrip().split("\n\n", 2)[1]
    assert below.startswith("Used by several of these: "), below
    return set(re.findall(r"`([\w/]+)/`", below))


def check(title: str, files: list[str]) -> None:
    """Compare a walk with the entered files.

    All files of the walk are among them, its rows are in the order in which they were entered, and no other
    folder was entered but those that the line below the table names.
    """
    rows = [[file for file in row if file.endswith(".py")] for row in walk(title)]
    missing = [file for row in rows for file in row if file not in files]
    assert not missing, f"never entered: {missing}"
    places = {row[0]: files.index(row[0]) for row in rows if row}
    assert list(places) == sorted(places, key=places.__getitem__), f"entered in another order: {places}"
    listed = {folder_of(file) for row in walk(title) for file in row}
    others = {folder_of(file) for file in files} - listed
    assert others == used(title), f"other folders: {sorted(others)}"


def folder_of(file: str) -> str:
    """Return the folder of a file, below the package, `curation` or `serve`; empty if there is none."""
    folders = file.split("/")[:-1]
    return "/".join(folders[: 2 if folders[:1] in (["curation"], ["serve"]) else 1])


class Recorder:
    """Records the files of a package whose functions are called.

    Every function of the package is compiled with a call of this object before its first statement. The
    walks take half to two thirds of the time of `sys.settrace`, which also stops in all other packages.

    Attributes:
        files: The files, in order.
        on: Record now.
    """

    def __init__(self, package: str, *, on: bool) -> None:
        self.files: list[str] = []
        self.on = on
        self.package = package

    def __call__(self, file: str) -> None:
        if self.on and file not in self.files and not _importing(sys._getframe(1)):
            self.files.append(file)

    def install(self) -> None:
        """Record the calls in all modules of the package that are imported from now on."""
        folder = ROOT / "src" / self.package
        loader = (_Loader, importlib.machinery.SOURCE_SUFFIXES)
        finder = importlib.machinery.FileFinder.path_hook(loader)
        setattr(builtins, _RECORDER, self)
        sys.path_hooks.insert(0, _hook_below(folder, finder))
        sys.path_importer_cache.clear()


#: The built-in name of the recorder.
_RECORDER = "_record_file_of_call"


def _hook_below(folder: Path, finder: Callable[[str], Any]) -> Callable[[str], Any]:
    def hook(path: str) -> Any:
        if not Path(path).is_relative_to(folder):
            raise ImportError
        return finder(path)

    return hook


class _Loader(importlib.machinery.SourceFileLoader):
    """Compiles modules with calls of the recorder, and leaves no bytecode of them."""

    def get_code(self, fullname: str) -> Any:
        path = self.get_filename(fullname)
        tree = ast.parse(self.get_data(path))
        below = Path(path).relative_to(ROOT / "src").parts[1:]
        call = f"{_RECORDER}({'/'.join(below)!r})"
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                (record,) = ast.parse(call).body
                for part in ast.walk(record):
                    ast.copy_location(part, node.body[0])
                node.body.insert(1 if ast.get_docstring(node) is not None else 0, record)
        return compile(tree, path, "exec", dont_inherit=True)


def _importing(frame: Any) -> bool:
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename != __file__:
            return True
        frame = frame.f_back
    return False


def _search(port: int) -> None:
    deadline = time.monotonic() + 200
    body, header = json.dumps({"query": "头疼", "k": 1}).encode(), {"content-type": "application/json"}
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.1)
    asked = urllib.request.Request(f"http://127.0.0.1:{port}/search", body, header)
    with urllib.request.urlopen(asked, timeout=60) as response:
        assert json.load(response)["hits"]


def _main(out: str, package: str, *command: str) -> None:
    request = command[0] == "--request"
    script, *arguments = command[1:] if request else command
    recorder = Recorder(package, on=not request)

    def record_a_search(port: int) -> None:
        _search(port)  # the first one loads what later ones find
        recorder.on = True
        _search(port)
        Path(out).write_text(json.dumps(recorder.files), encoding="utf-8")
        os._exit(0)

    if request:
        port = int(arguments[arguments.index("--port") + 1])
        threading.Thread(target=record_a_search, args=(port,), daemon=True).start()
    recorder.install()
    importlib.import_module(package)  # which its .pth file does in other processes
    module, _, function = script.partition(":")
    sys.argv = [module, *arguments]
    try:
        getattr(importlib.import_module(module), function)()
    finally:
        if not request:
            Path(out).write_text(json.dumps(recorder.files), encoding="utf-8")


if __name__ == "__main__":
    _main(*sys.argv[1:])
