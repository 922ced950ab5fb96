"""Fixtures: the files of an alignment, one thread, few texts to time."""

from __future__ import annotations

import pytest

from tests.conftest import write_jsonl
from tests.mar_st.spaces.texts import DOCUMENTS, QUERIES


@pytest.fixture(autouse=True)
def _fast(monkeypatch, one_thread):
    monkeypatch.setattr("mar_st.export.measure.TIMED_TEXTS", 2)


@pytest.fixture
def files(tmp_path):
    for name, texts in (("queries", QUERIES), ("corpus", DOCUMENTS)):
        rows = [{"_id": f"{name[0]}{i}", "text": text} for i, text in enumerate(texts)]
        write_jsonl(tmp_path / f"{name}.jsonl", rows)
