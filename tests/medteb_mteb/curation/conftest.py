"""Makes the servers on loopback importable: `fault_server`, `llm_server`, `rule_judges` of the examples."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"

_FAULTS = HERE / "judge" / "fault_server.py"
for _path in (EXAMPLES / "rule_judges.py", *((_FAULTS, HERE / "llm_server.py") if _FAULTS.exists() else ())):
    if _path.stem not in sys.modules:
        _spec = importlib.util.spec_from_file_location(_path.stem, _path)
        sys.modules[_path.stem] = importlib.util.module_from_spec(_spec)
        _spec.loader.exec_module(sys.modules[_path.stem])


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch):
    """Short pauses before requests are repeated."""
    if importlib.util.find_spec("openai"):
        monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
        monkeypatch.setattr("openai._base_client.MAX_RETRY_DELAY", 0.1)
    monkeypatch.setattr("medteb_mteb.curation.llm.client.FIRST_PAUSE", 0.01)
    monkeypatch.setattr("medteb_mteb.curation.llm.client.MAX_PAUSE", 0.1)
