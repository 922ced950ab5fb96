"""A working directory in which blocks of the docs run: commands in this process, servers beside it."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mar_st.model.names import packaged_folder
from tests.docs import forked
from tests.docs.blocks import BLOCKS, FRESH, STAND_INS, is_marked

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.process import BaseProcess

#: Lines that a shell runs as they are.
SHELL = re.compile(r"^(curl|chmod|ln|python -c)\b")
#: Commands that run until they are stopped.
SERVER = re.compile(r"^(\.venv/bin/)?(mar serve|python -m http\.server)\b")
#: Commands whose exit code says what they found: a set of a dozen queries does not pass validation, and
#: made-up Nano sets have other figures than the published ones.
FINDINGS = ("validate", "nano")


class Workspace:
    """A working directory in which blocks run, one after another.

    Attributes:
        folder: The directory.
        swapped: Texts of the docs, and what stands for them here.
        before: What a user does before a command, by its beginning.
        names: Variables of the blocks in Python.
    """

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.folder, self.patch = folder, patch
        self.swapped = STAND_INS | {"http://127.0.0.1:8000": f"http://127.0.0.1:{port}"}
        self.names: dict[str, Any] = {}
        self.before: dict[str, Callable[[], object]] = {}
        self.server: subprocess.Popen[bytes] | BaseProcess | None = None
        (folder / "another-model").symlink_to(packaged_folder())
        patch.chdir(folder)
        for name in ("MEDTEB_DATA", "MAR_STORE", "MAR_HOME", "MAR_STAGES", "MAR_API_KEYS", "MEDTEB_ANSWERS",
                     "MEDTEB_JOURNAL"):  # fmt: skip
            patch.delenv(name, raising=False)

    def swap(self, text: str) -> str:
        for name, other in self.swapped.items():
            text = text.replace(name, other)
        return text

    def run(self, step: str | tuple[str, str]) -> None:
        name, file = (step, None) if isinstance(step, str) else step
        for folder in FRESH.get(name, ()):
            shutil.rmtree(self.folder / folder)
        block = BLOCKS[name]
        if block.language == "python":
            exec(compile(self.swap(block.code), name, "exec"), self.names)
        elif block.language == "yaml":
            assert file, f"{name}: to which file?"
            self.text(file, self.swap(block.code))
        else:
            ran = [self.command(line) for line in block.lines() if not is_marked(line)]
            assert ran, f"{name}: nothing was run"

    def command(self, line: str) -> None:
        if line.startswith("python examples/rule_judges.py"):  # the fixture `rules` has started them
            assert "http://127.0.0.1:8900/v1" in self.swapped
            return
        for beginning, prepare in self.before.items():
            if line.startswith(beginning):
                prepare()
        line = self.swap(os.path.expandvars(line) if "$MAR_STORE" in line else line)
        if "/REVISION/" in line:
            (folder,) = (
                path for path in Path("results/predictions/medteb__mar-mini").iterdir() if path.is_dir()
            )
            line = line.replace("/REVISION/", f"/{folder.name}/")
        if SHELL.match(line):
            path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
            subprocess.run(["bash", "-c", line], env={**os.environ, "PATH": path}, timeout=60, check=True)
            return
        words = shlex.split(line, comments=True)
        if words[0] == "export":
            self.patch.setenv(*words[1].split("=", 1))
            return
        if ">" in words:
            words = words[: words.index(">")]
        if SERVER.match(line):
            self.serve(words)
            return
        with pytest.MonkeyPatch.context() as patch:
            while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                patch.setenv(*words.pop(0).split("=", 1))
            program, *arguments = words
            if program == "mteb":
                from mteb.cli.build_cli import main as mteb

                patch.setattr("sys.argv", words)
                mteb()
                return
            if program == "medteb":
                from medteb_mteb.cli import app
            else:
                assert program == "mar", line
                from mar_st.cli import app
            code = app(arguments, standalone_mode=False)
            assert not code or arguments[0] in FINDINGS, f"{line}: exit code {code}"

    def serve(self, words: list[str]) -> None:
        """Start a server on the port of this workspace; it takes the place of the one before."""
        self.stop()
        url = self.swapped["http://127.0.0.1:8000"]
        port = url.rpartition(":")[2]
        if words[0].endswith("mar"):
            log = self.folder.with_suffix(".server.log")
            self.server = forked.start([*words[1:], "--port", port], log)
        else:
            log = None
            command = [sys.executable, *words[1:], "--bind", "127.0.0.1", port]
            self.server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 120
        while True:
            try:
                with urllib.request.urlopen(url, timeout=5) as page:  # the search page
                    assert b"<html" in page.read()
                break
            except OSError:
                assert self._runs(), log.read_text() if log and log.exists() else words
                assert time.monotonic() < deadline, f"{words}: no answer"
                time.sleep(0.1)

    def _runs(self) -> bool:
        if isinstance(self.server, subprocess.Popen):
            return self.server.poll() is None
        return self.server is not None and self.server.is_alive()

    def stop(self) -> None:
        """Stop the server, if one runs."""
        if self.server is not None:
            self.server.terminate()
            if isinstance(self.server, subprocess.Popen):
                self.server.wait(60)
            else:
                self.server.join(60)
            assert not self._runs()
            self.server = None

    def rows(self, name: str, rows: list[dict]) -> Path:
        return self.text(name, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))

    def text(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path
