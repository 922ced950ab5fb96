"""A task is scored on a GPU as on the CPU, with stored vectors of documents or without."""

from __future__ import annotations

import pytest
import torch
from sentence_transformers import SentenceTransformer

from mar_st.evaluation.tasks import Task, load_task, score

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("kind", ["Retrieval", "Reranking", "STS"])
def test_scores_match_the_cpu(gpu, encoder_folder, make_folder, kind):
    data = load_task(Task(name="small", path=str(make_folder(kind))))
    expected = score(SentenceTransformer(str(encoder_folder), device="cpu"), data)
    model = SentenceTransformer(str(encoder_folder), device=str(gpu))
    assert score(model, data) == pytest.approx(expected, abs=1e-3)
    assert score(model, data, stored=lambda encode: encode().cpu()) == pytest.approx(expected, abs=1e-3)
    assert {parameter.device.type for parameter in model.parameters()} == {gpu.type}
    assert torch.isfinite(torch.tensor(expected)).all()
