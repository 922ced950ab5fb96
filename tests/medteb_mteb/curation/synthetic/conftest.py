"""Servers that write what a test wants, documents, and commands run as their program runs them."""

from __future__ import annotations

import importlib.util
import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

# Without the openai client there is nothing to ask.
collect_ignore_glob = [] if importlib.util.find_spec("openai") else ["test_queries.py", "test_tasks.py"]

DOCUMENTS = {
    "d1": "痛风急性发作时应尽早用药，并卧床休息、抬高患肢，避免动物内脏和啤酒。",
    "d2": "胃溃疡患者应按时吃饭，避免辛辣，规律服用抑酸药，四到八周后复查胃镜。",
    "d3": "婴儿发热超过三十八度五可以服用对乙酰氨基酚，精神差时应立即就诊。",
    "d4": "太短。",
    "d5": "痛风急性发作时应尽早用药，并卧床休息、抬高患肢，避免动物内脏和啤酒。",  # that of d1
}


@pytest.fixture(autouse=True)
def _no_journal_of_the_environment(monkeypatch):
    monkeypatch.delenv("MEDTEB_ANSWERS", raising=False)


@pytest.fixture
def documents(tmp_path) -> Path:
    path = tmp_path / "documents.jsonl"
    rows = [{"_id": name, "text": text} for name, text in DOCUMENTS.items()]
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def endpoint():
    """Starts a server: `endpoint(function or None, **faults)` -> (its account, an LLM at it)."""
    from contextlib import ExitStack

    from fault_server import FaultEndpoint
    from llm_server import llm_at, running

    with ExitStack() as stack:

        def start(answer, *, llm=None, **options):
            server = FaultEndpoint(answer=answer, **options)
            return server, llm_at(stack.enter_context(running(server)), **(llm or {}))

        yield start


@pytest.fixture
def rows_of():
    def read(path: Path) -> list[dict]:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

    return read


@pytest.fixture
def content():
    """Everything in a finished folder but what a run took."""

    def read(folder: Path) -> dict[str, bytes]:
        skipped = {".lock", "report.json"}
        return {path.name: path.read_bytes() for path in folder.iterdir() if path.name not in skipped}

    return read


@pytest.fixture
def synthesize(capsys):
    """`medteb synthesize ...` -> (exit code, stdout, stderr)."""
    from medteb_mteb.commands.synthesize import synthesize_app

    def call(*arguments):
        code = synthesize_app([str(argument) for argument in arguments], standalone_mode=False) or 0
        out, err = capsys.readouterr()
        return code, out, err

    return call
