from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from medteb_mteb.abstasks.tuned import fine_tuned


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_model_in_half_precision_is_tuned_in_float32_and_stays_as_it_is(encoder_folder, dtype):
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(encoder_folder), device="cpu").to(dtype)
    tuned = fine_tuned(SimpleNamespace(model=model), ["感冒发烧", "血压高"], [0, 1]).model
    assert {p.dtype for p in tuned.parameters()} == {torch.float32}
    assert {p.dtype for p in model.parameters()} == {dtype}
    assert all(torch.isfinite(p).all() for p in tuned.parameters())
