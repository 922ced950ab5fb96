"""Checkpoints of the name `new`: their configuration in transformers' terms, and folders without code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import AutoConfig

from mar_st.errors import MarError
from mar_st.model.native_gte import native, native_gte_config

NEW = {
    "model_type": "new",
    "architectures": ["NewModel"],
    "auto_map": {"AutoModel": "x--modeling.NewModel"},
    "vocab_size": 50,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "position_embedding_type": "rope",
    "layer_norm_type": "layer_norm",
    "rope_theta": 160000,
    "rope_scaling": {"type": "ntk", "factor": 8.0},
    "pack_qkv": True,
    "unpad_inputs": False,
}


@pytest.fixture
def checkpoint(tmp_path):
    """A folder of the name `new` with code beside the weights."""
    folder = tmp_path / "checkpoint"
    (folder / "onnx").mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(NEW), encoding="utf-8")
    (folder / "model.safetensors").write_bytes(b"weights")
    (folder / "modeling.py").write_text("raise SystemExit", encoding="utf-8")
    return folder


def test_variants_the_native_model_lacks_are_refused():
    with pytest.raises(MarError, match="position_embedding_type 'absolute'"):
        native_gte_config({"model_type": "new", "position_embedding_type": "absolute"})


def test_the_configuration_keeps_its_values_under_native_names():
    config = native_gte_config(NEW)
    assert config["rope_parameters"] == {"rope_theta": 160000, "rope_type": "ntk", "factor": 8.0}
    kept = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    assert {name: config[name] for name in kept} == {name: NEW[name] for name in kept}
    assert not {"auto_map", "pack_qkv", "unpad_inputs", "rope_theta", "rope_scaling"} & set(config)
    plain = native_gte_config({**NEW, "rope_scaling": None})
    assert plain["rope_parameters"] == {"rope_theta": 160000, "rope_type": "default"}
    loaded = AutoConfig.for_model(**plain)
    assert (type(loaded).__name__, loaded.rope_parameters["rope_theta"]) == ("GteConfig", 160000)


def test_a_folder_of_links_needs_no_code_and_goes_away(checkpoint):
    before = (checkpoint / "config.json").read_text(encoding="utf-8")
    with native(checkpoint) as source:
        folder = Path(source)
        assert folder.name == checkpoint.name != str(checkpoint)
        assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]
        assert (folder / "model.safetensors").read_bytes() == b"weights"
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        assert config == native_gte_config(NEW)
    assert not folder.exists()
    assert (checkpoint / "config.json").read_text(encoding="utf-8") == before
    assert (checkpoint / "model.safetensors").read_bytes() == b"weights"
