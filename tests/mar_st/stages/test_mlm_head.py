"""The masked-LM head of a backbone computes what transformers computes with it."""

from __future__ import annotations

import pytest
import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertModel,
    GteConfig,
    GteForMaskedLM,
    ModernBertConfig,
    ModernBertForMaskedLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    XLMRobertaConfig,
    XLMRobertaForMaskedLM,
)

from mar_st.stages.retromae import source_head

SHAPE = {
    "vocab_size": 60,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 40,
}


@pytest.mark.parametrize(
    ("config", "architecture"),
    [
        (GteConfig(**SHAPE), GteForMaskedLM),
        (BertConfig(**SHAPE), BertForMaskedLM),
        (XLMRobertaConfig(**SHAPE, pad_token_id=1), XLMRobertaForMaskedLM),
        (ModernBertConfig(**SHAPE, pad_token_id=0, cls_token_id=1, sep_token_id=2), ModernBertForMaskedLM),
    ],
    ids=lambda value: getattr(value, "model_type", ""),
)
def test_the_head_gives_the_logits_of_the_whole_model(tmp_path, config, architecture):
    torch.manual_seed(0)
    model = architecture(config).eval()
    with torch.no_grad():  # biases and norms are 0 and 1 in a new model
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(tmp_path)
    tokens = torch.arange(5, 15)[None]
    head = source_head(str(tmp_path))
    assert head is not None
    with torch.no_grad():
        states = model.base_model(input_ids=tokens).last_hidden_state
        logits = head(states, model.get_input_embeddings().weight)
        torch.testing.assert_close(logits, model(input_ids=tokens).logits, atol=1e-4, rtol=1e-4)


def test_encoders_and_causal_models_have_no_head(tmp_path):
    BertModel(BertConfig(**SHAPE)).save_pretrained(tmp_path / "bert")
    assert source_head(str(tmp_path / "bert")) is None
    config = Qwen3Config(**SHAPE, num_key_value_heads=1, head_dim=8)
    Qwen3ForCausalLM(config).save_pretrained(tmp_path / "qwen3")
    assert source_head(str(tmp_path / "qwen3")) is None
