"""Makes the servers on loopback importable: `fault_server`, `llm_server`, `rule_judges` of the examples."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest
from tests.conftest import write_jsonl

HERE = Path(__file__).parent

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"

for _path in (EXAMPLES / "rule_judges.py", HERE / "judge" / "fault_server.py", HERE / "llm_server.py"):
    if _path.stem not in sys.modules:
        _spec = importlib.util.spec_from_file_location(_path.stem, _path)
        sys.modules[_path.stem] = importlib.util.module_from_spec(_spec)
        _spec.loader.exec_module(sys.modules[_path.stem])


@pytest.fixture(scope="module")
def endpoint():
    """The rule-based judges, which count the questions as `requests`."""

    class Counting(sys.modules["rule_judges"].Endpoint):
        requests = 0

        async def answer(self, call):
            self.requests += call.path == "/v1/chat/completions"
            return await super().answer(call)

    return Counting()


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch):
    """Short pauses before requests are repeated."""
    if importlib.util.find_spec("openai"):
        monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
        monkeypatch.setattr("openai._base_client.MAX_RETRY_DELAY", 0.1)


@pytest.fixture
def write():
    """Writes rows of JSON."""
    return write_jsonl


@pytest.fixture
def rows_of():
    """Reads rows of JSON; none if the file does not exist."""

    def read(path: Path) -> list[dict]:
        return [json.loads(line) for line in path.open(encoding="utf-8")] if path.exists() else []

    return read


@pytest.fixture
def content():
    """Everything that steps have written, without their records and journals."""

    def read(folder: Path) -> dict[str, bytes]:
        paths = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".sqlite")
        kept = (path for path in paths if path.name not in (".lock", "step.json"))
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in kept}

    return read


@pytest.fixture
def run_step(tmp_path):
    """Runs a step into a folder: `run_step(STEP, "out", option=...) -> counts`."""
    from medteb_mteb.curation.step import perform

    def run(step, out="out", **options):
        answers = {"already_anonymous": True} if "already_anonymous" in step.settings.model_fields else {}
        record, _ = perform(step, step.settings(**{"out": tmp_path / out} | answers | options))
        return record["counts"]

    return run
