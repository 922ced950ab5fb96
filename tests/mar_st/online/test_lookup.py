"""Lookup encoders of saved models, computed with numpy: their vectors, and folders that are broken."""

from __future__ import annotations

import copy
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize

from mar_st.errors import MarError
from mar_st.online.encoders import load_query_encoder
from mar_st.online.lookup import NumpyLookupEncoder
from mar_st.online.protocol import EncoderError, encoder_name, encoder_origin
from mar_st.online.torch_encoder import TorchEncoder
from tests.mar_st.lookup.conftest import family, fitted, texts, vectors  # noqa: F401 -- fixtures


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_numpy_agrees_with_the_module_of_a_saved_model(fitted, tmp_path, dtype, texts):  # noqa: F811
    model = SentenceTransformer(modules=[copy.deepcopy(fitted).to(dtype), Normalize()], device="cpu")
    model.save_pretrained(str(tmp_path))
    loaded, module = load_query_encoder(tmp_path), TorchEncoder.open(str(tmp_path), device="cpu")
    assert isinstance(loaded, NumpyLookupEncoder)
    tolerance = 1e-5 if dtype == torch.float32 else 5e-3
    asked = [*texts, "", "无", "ＡＢＣ\t头 ", "头疼" * 900]
    np.testing.assert_allclose(loaded.encode(asked), module.encode(asked), atol=tolerance)
    assert loaded.count_tokens(asked) == module.count_tokens(asked)
    assert loaded.encode([]).shape == (0, loaded.dim)
    assert encoder_origin(loaded) == encoder_origin(module) == module.identity


def test_an_encoder_of_a_family_needs_no_torch(family):  # noqa: F811
    folder = family / "mar"
    loaded = load_query_encoder(folder, query="query-lookup")
    module = load_query_encoder(folder, query="query-lookup", backend="torch")
    assert encoder_name(loaded) == encoder_name(module) == "query-lookup"
    for name in ("dim", "space", "normalised", "max_length", "prompts"):
        assert getattr(loaded, name) == getattr(module, name)
    code = (
        "import sys; from mar_st import load_query_encoder; "
        f"load_query_encoder({str(folder)!r}, query='query-lookup').encode(['头疼']); "
        "print('torch' in sys.modules)"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert printed.stdout.split() == ["False"]


def test_damaged_models_are_refused(family, tmp_path):  # noqa: F811
    folder = tmp_path / "mar"
    shutil.copytree(family / "mar", folder)
    (part,) = folder.glob("query-lookup_0_*")
    weights = part / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-7])
    with pytest.raises(EncoderError, match="copy the encoder again"):
        load_query_encoder(folder, query="query-lookup")
    weights.write_bytes(content)
    (part / "features.json").write_text('["另"]', encoding="utf-8")
    with pytest.raises(MarError, match="come from different encoders"):
        load_query_encoder(folder, query="query-lookup")
