from __future__ import annotations

import pytest

from mar_st.stages import align, contrastive


@pytest.fixture
def fit_arguments(monkeypatch):
    """Arguments that a stage passes to the trainer, which does not run."""
    arguments = {}

    def fit(model, data, loss, stage, settings, **options):
        arguments.update(data=data, loss=loss, **options)

    for module in (align, contrastive):
        monkeypatch.setattr(module, "fit", fit)
    return arguments


@pytest.fixture(autouse=True)
def _fast(one_thread):
    """All tests of stages."""
