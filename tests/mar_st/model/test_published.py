from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from peft import LoraConfig
from safetensors.torch import save_file

from mar_st import MAR
from mar_st.errors import MarError
from mar_st.model.published import assemble

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def repository(mar, tmp_path):
    """A folder of the published shape: two transformers folders, native architectures."""
    for side in ("query", "document"):
        transformer = mar.route_modules(side)[0]
        if side == "document":
            transformer.tokenizer.add_eos_token = False
        transformer.save(str(tmp_path / f"{side}-encoder"))
        (tmp_path / f"{side}-encoder" / "sentence_bert_config.json").unlink()
    return tmp_path


def test_scoring_matches_the_authors_scoring(repository, mar):
    built = assemble(repository, device="cpu")
    texts = ["感冒发热咳嗽医生你好", "头疼"]
    full = mar.encoder("document").encode(
        [f"{text}[EOS]" for text in texts]
    )  # the fixture's tokenizer adds none now
    np.testing.assert_allclose(built.encode_corpus(texts), full[:, :32], atol=1e-5)
    assert built.similarity_fn_name == "dot"
    query = built.encode_queries(["头疼"], prompt="")
    np.testing.assert_allclose(np.linalg.norm(query), 1.0, atol=1e-5)
    torch.testing.assert_close(
        built.similarity(query, full[:, :32]), torch.from_numpy(query @ full[:, :32].T), atol=1e-5, rtol=1e-4
    )
    assert built.prompts["query"].startswith("<instruct>Given a Chinese medical question")
    assert built.prompts["query"].endswith("\n<query>")


def test_assembled_model_saves_and_loads(repository, tmp_path):
    built = assemble(repository, device="cpu")
    built.save_pretrained(str(tmp_path / "out"))
    loaded = MAR.from_pretrained(tmp_path / "out", device="cpu")
    np.testing.assert_allclose(
        loaded.encode_corpus(["头疼吃药"]), built.encode_corpus(["头疼吃药"]), atol=1e-6
    )
    np.testing.assert_allclose(
        loaded.encode_queries(["头疼吃药"]), built.encode_queries(["头疼吃药"]), atol=1e-6
    )


def _as_new(native: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    """Weights of the native gte model as `new` stores them: packed q, k, v and up, gate; other names."""
    native = dict(native)
    renamed: dict[str, torch.Tensor] = {}
    for index in range(2):
        old, new = f"layers.{index}.", f"encoder.layer.{index}."
        for kind in ("weight", "bias"):
            parts = [native.pop(f"{old}self_attn.{part}_proj.{kind}") for part in "qkv"]
            renamed[f"{new}attention.qkv_proj.{kind}"] = torch.cat(parts)
        parts = [native.pop(f"{old}mlp.{part}_proj.weight") for part in ("up", "gate")]
        renamed[f"{new}mlp.up_gate_proj.weight"] = torch.cat(parts)
        for source, target in (
            ("self_attn.o_proj", "attention.o_proj"),
            ("post_attention_layernorm", "attn_ln"),
            ("post_mlp_layernorm", "mlp_ln"),
            ("mlp.down_proj", "mlp.down_proj"),
        ):
            for kind in ("weight", "bias"):
                renamed[f"{new}{target}.{kind}"] = native.pop(f"{old}{source}.{kind}")
    assert not [name for name in native if name.startswith("layers.")]
    return {prefix + name: tensor.contiguous() for name, tensor in {**native, **renamed}.items()}


def _write_new(folder: Path, tensors: dict[str, torch.Tensor]) -> None:
    """Put a `new` checkpoint into the folder of a native one."""
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config.pop("rope_parameters")
    config |= {
        "model_type": "new",
        "architectures": ["NewModel"],
        "auto_map": {"AutoConfig": "x--configuration.NewConfig", "AutoModel": "x--modeling.NewModel"},
        "rope_theta": 160000,
        "rope_scaling": None,
        "position_embedding_type": "rope",
        "layer_norm_type": "layer_norm",
        "pack_qkv": True,
    }
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("prefix", ["", "new."])
def test_remote_code_checkpoint_is_read_natively(repository, mar, prefix):
    # From the model in memory: transformers may save a native gte model in either layout.
    folder = repository / "query-encoder"
    encoder = mar.route_modules("query")[0].model
    for name, parameter in encoder.named_parameters():
        if "LayerNorm" in name or "layernorm" in name or name.endswith("bias"):
            parameter.data.normal_(
                1.0 if name.endswith("weight") else 0.0, 0.3
            )  # tell biases and norms apart
    _write_new(folder, _as_new(encoder.state_dict(), prefix))
    built = assemble(repository, device="cpu")
    assert built.route_modules("query")[0].model.config.model_type == "gte"
    texts = ["头疼吃药", "高血压"]
    expected = mar.encode_queries(texts, prompt="")
    np.testing.assert_allclose(built.encode_queries(texts, prompt=""), expected, atol=1e-5)


def test_an_adapter_may_name_any_folder_as_its_base(repository, mar, tmp_path_factory):
    folder = repository / "document-encoder"
    base = folder.rename(tmp_path_factory.mktemp("models") / "base")
    document = mar.route_modules("document")[0]
    document.model.add_adapter(LoraConfig(r=4, target_modules=["q_proj"], init_lora_weights=False))
    document.model.save_pretrained(folder)
    document.tokenizer.add_eos_token = False
    document.tokenizer.save_pretrained(folder)
    settings = json.loads((folder / "adapter_config.json").read_text())
    settings["base_model_name_or_path"] = str(base)
    (folder / "adapter_config.json").write_text(json.dumps(settings))

    built = assemble(repository, device="cpu")

    expected = mar.encoder("document").encode(["感冒发热[EOS]", "头疼[EOS]"])[:, :32]
    np.testing.assert_allclose(built.encode_corpus(["感冒发热", "头疼"]), expected, atol=1e-5)


def test_unreachable_hub_name_says_what_to_do():
    with pytest.raises(MarError, match=r"Cannot download PhilipGAQ/CARE-0\.3B-4B .* give the folder"):
        assemble("PhilipGAQ/CARE-0.3B-4B")
