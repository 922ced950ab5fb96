from __future__ import annotations

import numpy as np
import pytest
import torch

from mar_st import MAR
from mar_st.adapters import add_lora, has_adapter, merge_lora

pytest.importorskip("peft", reason="LoRA needs the train extra")


def _with_adapter(mar: MAR) -> MAR:
    transformer = mar.route_modules("document")[0]
    add_lora(transformer, r=4, alpha=8, dropout=0.0)
    torch.manual_seed(5)
    for name, parameter in transformer.model.named_parameters():
        if "lora_B" in name:  # zero at first, which would make every identity vacuous
            parameter.data.normal_(std=0.5)
    return mar


def test_lora_touches_the_document_route_alone(mar):
    _with_adapter(mar)
    assert has_adapter(mar.route_modules("document")[0])
    assert not has_adapter(mar.route_modules("query")[0])
    trained = [name for name, p in mar.route_modules("document")[0].named_parameters() if p.requires_grad]
    assert trained
    assert all("lora_" in name for name in trained)


def test_merged_equals_unmerged(mar, documents):
    before = mar.encode_corpus(documents)
    _with_adapter(mar)
    adapted = mar.encode_corpus(documents)
    assert np.abs(adapted - before).max() > 1e-3
    transformer = mar.route_modules("document")[0]
    merge_lora(transformer)
    assert not has_adapter(transformer)
    np.testing.assert_allclose(mar.encode_corpus(documents), adapted, atol=1e-5)


def test_merged_model_saves_and_loads_plainly(mar, documents, tmp_path):
    _with_adapter(mar)
    merge_lora(mar.route_modules("document")[0])
    mar.save_pretrained(str(tmp_path))
    assert not list(tmp_path.rglob("adapter_*"))
    np.testing.assert_allclose(
        MAR.from_pretrained(tmp_path).encode_corpus(documents), mar.encode_corpus(documents), atol=1e-5
    )


@pytest.mark.parametrize("merge", [True, False])
def test_adapter_folder_is_a_document_source(mar, documents, query_source, tmp_path, merge):
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    transformer = mar.route_modules("document")[0]
    transformer.save(str(base))
    transformer.model.config._name_or_path = str(base)
    transformer.model.name_or_path = str(base)
    _with_adapter(mar)
    expected = mar.encode_corpus(documents)
    transformer.model.save_pretrained(adapter)
    transformer.tokenizer.save_pretrained(adapter)
    assert (adapter / "adapter_model.safetensors").is_file()
    built = MAR.from_encoders(query=query_source, document=adapter, dim=32, merge_adapter=merge, device="cpu")
    assert has_adapter(built.route_modules("document")[0]) is not merge
    np.testing.assert_allclose(built.encode_corpus(documents), expected, atol=1e-5)


def test_foreign_architecture_names_its_layers(mar):
    with pytest.raises(ValueError, match="none of the LoRA targets"):
        add_lora(mar.route_modules("document")[0], targets=["c_attn"])
