"""`mar` commands in processes that are forked from one with all libraries, which they need not import."""

from __future__ import annotations

import multiprocessing
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = ["mar_st.cli", "mar_st.serve", "sentence_transformers", "tests.docs.forked"]


def start(arguments: list[str], log: Path) -> BaseProcess:
    """Run `mar ARGUMENTS` in this directory with this environment; its standard error goes to a file."""
    if str(ROOT) not in sys.path:  # where the process finds this module
        sys.path.append(str(ROOT))
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LIBRARIES)
    process = context.Process(
        target=_run, args=(arguments, str(Path.cwd()), dict(os.environ), str(log)), daemon=True
    )
    process.start()
    return process


def _run(arguments: list[str], folder: str, environment: dict[str, str], log: str) -> None:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    with Path(log).open("ab") as file:
        os.dup2(file.fileno(), 2)
    from mar_st.cli import app

    app(arguments)
