"""Lookup encoders of model folders are computed with numpy, and give what the torch module gives."""

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

from mar_st.export.lookup import export_lookup
from mar_st.lookup import LookupEncoderError
from mar_st.model.space import space_of
from mar_st.online import EncoderError, load_query_encoder
from mar_st.online.lookup import NumpyLookupEncoder
from mar_st.online.lookup_folder import open_lookup
from mar_st.online.protocol import encoder_name, encoder_origin
from mar_st.online.torch_encoder import TorchEncoder
from tests.mar_st.lookup.conftest import family, fitted, texts, vectors  # noqa: F401 -- fixtures


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_numpy_agrees_with_the_module(fitted, tmp_path, dtype, texts):  # noqa: F811
    model = SentenceTransformer(modules=[copy.deepcopy(fitted).to(dtype), Normalize()], device="cpu")
    model.save_pretrained(str(tmp_path))
    loaded, module = load_query_encoder(tmp_path), TorchEncoder(model)
    assert isinstance(loaded, NumpyLookupEncoder)
    tolerance = 1e-5 if dtype == torch.float32 else 5e-3
    np.testing.assert_allclose(loaded.encode(texts), module.encode(texts), atol=tolerance)
    assert encoder_origin(loaded) == encoder_origin(module) == module.identity
    assert loaded.identity != module.identity  # not the same to the last bit


def test_a_rung_of_a_family_needs_no_torch(family):  # noqa: F811
    folder = family / "mar"
    loaded = load_query_encoder(folder, query="query-lookup")
    module = load_query_encoder(folder, query="query-lookup", backend="torch")
    assert encoder_name(loaded) == encoder_name(module) == "query-lookup"
    assert encoder_origin(loaded) == encoder_origin(module)
    for name in ("dim", "space", "normalised", "max_length", "prompts"):
        assert getattr(loaded, name) == getattr(module, name)
    assert loaded.space == space_of(folder)
    code = (
        "import sys; from mar_st.online import load_query_encoder; "
        f"load_query_encoder({str(folder)!r}, query='query-lookup').encode(['头疼']); "
        "print('torch' in sys.modules)"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert printed.stdout.split() == ["False"]


def test_other_encoders_are_left_to_torch(family, fitted, tmp_path):  # noqa: F811
    assert open_lookup(family / "mar") is None
    assert encoder_name(load_query_encoder(family / "mar")) == "query"
    assert open_lookup(family) is None
    model = SentenceTransformer(modules=[copy.deepcopy(fitted).bfloat16()], device="cpu")
    model.save_pretrained(str(tmp_path))
    assert open_lookup(tmp_path) is None  # numpy has no bfloat16


@pytest.mark.parametrize("name", ["query-huge", "document", "lookup"])
def test_an_unknown_name_is_refused_with_the_names_there_are(family, name):  # noqa: F811
    wanted = f"no query encoder {name!r}; it has query, query-lookup"
    with pytest.raises(Exception, match=wanted):
        load_query_encoder(family / "mar", query=name)


def test_an_exported_encoder_loads_only_under_its_own_name(family, tmp_path):  # noqa: F811
    export_lookup(family / "mar", tmp_path / "out", query="query-lookup")
    loaded = load_query_encoder(tmp_path / "out", query="query-lookup")
    assert encoder_name(loaded) == "query-lookup"
    assert encoder_origin(loaded) == encoder_origin(load_query_encoder(family / "mar", query="query-lookup"))
    with pytest.raises(
        EncoderError,
        match=r"holds only query-lookup, not 'query'.*mar export MODEL OUT --query-enc",
    ):
        load_query_encoder(tmp_path / "out", query="query")


def test_damaged_folders_are_refused(family, tmp_path):  # noqa: F811
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
    with pytest.raises(LookupEncoderError, match="come from different encoders"):
        load_query_encoder(folder, query="query-lookup")
