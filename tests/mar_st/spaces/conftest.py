"""Fixtures: the files of an alignment, one thread, few texts to time."""

from __future__ import annotations

import json

import pytest
import torch

from tests.mar_st.spaces.texts import DOCUMENTS, QUERIES


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch):
    monkeypatch.setattr("mar_st.export.measure.TIMED_TEXTS", 2)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def files(tmp_path):
    def write(name, rows):
        path = tmp_path / name
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
        return path

    return (
        write("queries.jsonl", [{"_id": f"q{i}", "text": text} for i, text in enumerate(QUERIES)]),
        write("corpus.jsonl", [{"_id": f"d{i}", "text": text} for i, text in enumerate(DOCUMENTS)]),
    )
