from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch):
    """Matrices of this size only lose by threads that wait for each other."""
    monkeypatch.delenv("MAR_STORE", raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
