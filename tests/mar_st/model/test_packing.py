from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from mar_st import MAR
from mar_st.errors import MarError
from mar_st.model.packing import store_as


def _bytes(folder):
    return sum(path.stat().st_size for path in folder.rglob("*.safetensors"))


def _configs(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.json")}


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 2e-3), ("bfloat16", 2e-2)])
def test_16_bits_halve_the_bytes_and_keep_the_vectors(mar, queries, documents, tmp_path, dtype, tolerance):
    mar.save_pretrained(str(tmp_path))
    before, configs = _bytes(tmp_path), _configs(tmp_path)
    stored = sum(parameter.numel() for parameter in mar.parameters())
    assert store_as(tmp_path, dtype) == _bytes(tmp_path)
    assert before - _bytes(tmp_path) == pytest.approx(2 * stored, rel=0.02)
    for path in tmp_path.rglob("*.safetensors"):
        assert {tensor.dtype for tensor in load_file(path).values()} == {getattr(torch, dtype)}
    assert _configs(tmp_path) == configs
    config = json.loads((tmp_path / "query_0_Transformer" / "config.json").read_text())
    assert config["dtype"] == "float32"
    loaded = MAR.from_pretrained(tmp_path, device="cpu")
    assert {parameter.dtype for parameter in loaded.parameters()} == {torch.float32}
    pairs = [
        (loaded.encode_queries(queries), mar.encode_queries(queries)),
        (loaded.encode_corpus(documents), mar.encode_corpus(documents)),
    ]
    for packed, whole in pairs:
        assert packed.dtype == np.float32
        assert 0 < np.abs(packed - whole).max() < tolerance


def test_integers_and_metadata_stay_unchanged(tmp_path):
    tensors = {"ids": torch.arange(3), "weight": torch.ones(2)}
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    store_as(tmp_path)
    loaded = load_file(tmp_path / "model.safetensors")
    assert loaded["ids"].dtype == torch.int64
    assert loaded["weight"].dtype == torch.float16
    with safe_open(tmp_path / "model.safetensors", framework="pt") as file:
        assert file.metadata() == {"format": "pt"}
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


def test_packing_twice_changes_nothing(mar, tmp_path):
    mar.save_pretrained(str(tmp_path))
    store_as(tmp_path)
    once = {path: path.read_bytes() for path in tmp_path.rglob("*.safetensors")}
    store_as(tmp_path)
    assert once == {path: path.read_bytes() for path in tmp_path.rglob("*.safetensors")}


@pytest.mark.parametrize("dtype", ["int8", "int64", "bool", "float8"])
def test_other_dtypes_are_refused_before_anything_is_written(tmp_path, dtype):
    save_file({"weight": torch.rand(3, 2)}, str(tmp_path / "model.safetensors"))
    before = (tmp_path / "model.safetensors").read_bytes()
    with pytest.raises(MarError, match="stored as float16, bfloat16, float32"):
        store_as(tmp_path, dtype)
    assert (tmp_path / "model.safetensors").read_bytes() == before
