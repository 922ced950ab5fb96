"""The masked-LM head of a backbone computes what transformers computes with it."""

from __future__ import annotations

import pytest
import torch
import yaml
from safetensors.torch import load_file
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

from mar_st.errors import MarError
from mar_st.model.mlm_head import source_head
from mar_st.recipes.load import load_recipe
from mar_st.runs.train import train

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


@pytest.mark.thorough
def test_pre_training_starts_from_the_head_and_continues_from_its_own(tmp_path, query_source):
    config, tokenizer = query_source
    torch.manual_seed(0)
    backbone = GteForMaskedLM(config)
    with torch.no_grad():
        backbone.lm_head.decoder.bias.normal_()
    backbone.save_pretrained(tmp_path / "backbone")
    tokenizer.save_pretrained(tmp_path / "backbone")
    (tmp_path / "texts.jsonl").write_text(
        '{"text": "头疼发热吃什么药"}\n{"text": "血压高怎么办"}\n', encoding="utf-8"
    )
    stage = {"stage": "retromae", "name": "pre", "batch_size": 2, "learning_rate": 1e-9}
    content = {
        "name": "pre",
        "description": "for tests",
        "dim": config.hidden_size,
        "query": {"source": str(tmp_path / "backbone"), "max_length": 16},
        "data": [{"name": "texts", "path": str(tmp_path / "texts.jsonl"), "form": "texts", "role": "query"}],
        "stages": [stage],
    }

    def run(name, lines):
        (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
        train(load_recipe(tmp_path / "recipe.yaml"), tmp_path / name, say=lines.append)
        return load_file(tmp_path / name / "01-pre" / "retromae.safetensors")

    first = run("first", lines := [])
    assert any(line == f"stage pre: masked-LM head from that of {tmp_path / 'backbone'}" for line in lines)
    torch.testing.assert_close(first["head.bias"], backbone.lm_head.decoder.bias.data, atol=1e-6, rtol=0)
    stage["resume_head"] = str(tmp_path / "first" / "01-pre")
    second = run("second", [])
    assert first.keys() == second.keys()
    for key, value in first.items():  # the decoder, which no backbone brings, as well
        torch.testing.assert_close(second[key], value, atol=1e-6, rtol=0)
    stage["resume_head"] = str(tmp_path / "nowhere")
    with pytest.raises(MarError, match="Give the folder of a finished retromae stage"):
        run("third", [])
