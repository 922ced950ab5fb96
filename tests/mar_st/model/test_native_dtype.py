from __future__ import annotations

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from mar_st import MAR
from mar_st.model import native_dtype
from mar_st.model.native_dtype import is_native, use_native_dtype
from mar_st.model.opening import open_model
from medteb_mteb.models.local import folder_meta

TEXTS = ["肺炎怎么治", "感冒吃什么药"]
HALF = [torch.float16, torch.bfloat16]


@pytest.fixture
def emulating(monkeypatch):
    """A processor without instructions for half precision."""
    monkeypatch.setattr(native_dtype, "is_native", lambda _: False)


def _dtypes(model):
    return {p.dtype for p in model.parameters()}


@pytest.fixture
def halved(mar, tmp_path):
    """Folder of a MAR in half precision: ``halved(torch.float16)``."""

    def build(dtype):
        mar.to(dtype).save_pretrained(str(tmp_path / "halved"))
        return tmp_path / "halved"

    return build


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.usefixtures("emulating")
def test_emulated_half_precision_is_opened_as_float32(halved, dtype):
    folder = halved(dtype)
    model = open_model(folder, device="cpu")
    assert _dtypes(model) == {torch.float32}
    asked = MAR.from_pretrained(folder, device="cpu", model_kwargs={"dtype": torch.float32})
    np.testing.assert_allclose(model.encode_query(TEXTS), asked.encode_query(TEXTS), atol=1e-6)
    assert _dtypes(folder_meta(folder).load_model(device="cpu").model) == {torch.float32}


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", HALF)
def test_native_half_precision_stays(halved, monkeypatch, dtype):
    monkeypatch.setattr(native_dtype, "is_native", lambda _: True)
    assert dtype in _dtypes(open_model(halved(dtype), device="cpu"))


@pytest.mark.usefixtures("emulating")
def test_a_requested_dtype_is_kept(halved):
    model = open_model(halved(torch.bfloat16), device="cpu", model_kwargs={"dtype": torch.bfloat16})
    assert torch.bfloat16 in _dtypes(model)


@pytest.mark.usefixtures("emulating")
def test_a_plain_model_is_opened_as_float32(encoder_folder, tmp_path):
    SentenceTransformer(str(encoder_folder), device="cpu").half().save_pretrained(str(tmp_path / "half"))
    assert _dtypes(SentenceTransformer(str(tmp_path / "half"), device="cpu")) == {torch.float16}
    assert _dtypes(open_model(tmp_path / "half", device="cpu")) == {torch.float32}
    assert _dtypes(folder_meta(tmp_path / "half").load_model(device="cpu").model) == {torch.float32}


@pytest.mark.usefixtures("emulating")
def test_weights_that_would_not_fit_stay_with_a_warning(monkeypatch):
    model = torch.nn.Linear(8, 8, bias=False).bfloat16()
    monkeypatch.setattr(native_dtype, "available_memory", lambda: 4 * 64 - 1)
    with pytest.warns(UserWarning, match="no instructions for bfloat16, so"):
        assert not use_native_dtype(model)
    assert _dtypes(model) == {torch.bfloat16}
    monkeypatch.setattr(native_dtype, "available_memory", lambda: 4 * 64)
    assert use_native_dtype(model)
    assert _dtypes(model) == {torch.float32}


@pytest.mark.parametrize("dtype", HALF)
def test_torch_without_onednn_is_left_alone(monkeypatch, dtype):
    monkeypatch.setattr(torch.ops, "mkldnn", object())
    assert is_native(dtype)
