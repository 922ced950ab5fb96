from __future__ import annotations

import pytest
import torch

from mar_st.export.source import open_source, write_front
from mar_st.model import dtypes as native_dtype
from mar_st.online.protocol import encoder_origin
from mar_st.online.torch_encoder import TorchEncoder
from tests.mar_st.export.conftest import make_model


@pytest.mark.parametrize("native", [True, False])
def test_half_precision_is_recognised_from_saved_weights(tmp_path, monkeypatch, native):
    """Also on a processor that computes in float32 because it has no instructions for half precision."""
    monkeypatch.setattr(native_dtype, "is_native", lambda _: native)
    make_model(prompts={"query": "吃："}).half().save(str(tmp_path / "half"))
    source = open_source(str(tmp_path / "half"))
    assert source.model.dtype == torch.float32
    (tmp_path / "out").mkdir()
    listing, _ = write_front(source, tmp_path / "out", exact=False)
    opened = TorchEncoder.open(str(tmp_path / "half"), device="cpu")
    assert opened.model.dtype == (torch.float16 if native else torch.float32)
    assert listing.model["identity"] == encoder_origin(opened)


def test_a_model_is_exported_on_the_cpu_where_another_device_is_the_default(tmp_path, other_default_device):
    make_model().save(str(tmp_path / "model"))
    assert TorchEncoder.open(str(tmp_path / "model")).model.device.type == other_default_device
    source = open_source(str(tmp_path / "model"))
    assert source.model.device.type == "cpu"
    (tmp_path / "out").mkdir()
    listing, _ = write_front(source, tmp_path / "out", exact=True)
    assert listing.model["identity"] == encoder_origin(source.encoder)
