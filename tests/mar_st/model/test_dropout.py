"""`mar_st.model.dropout`."""

import pytest
import torch
from transformers import AutoConfig, AutoModel

from mar_st.model.dropout import set_dropout
from tests.mar_st.conftest import make_config


@pytest.mark.parametrize("kind", ["bert", "gte", "gpt_neox", "qwen3", "xlm-roberta"])
def test_the_probability_applies_to_every_dropout_and_is_saved(kind, tmp_path):
    config = make_config(kind)
    torch.manual_seed(0)
    model = AutoModel.from_config(config).train()
    ids = torch.arange(5, 17)[None]

    def twice():
        return [model(input_ids=ids).last_hidden_state for _ in range(2)]

    set_dropout(model, 0.5)
    assert not torch.equal(*twice())
    model.save_pretrained(tmp_path)
    saved = AutoConfig.from_pretrained(tmp_path)
    assert 0.5 in [value for name, value in saved.to_dict().items() if "dropout" in name]
    set_dropout(model, 0.0)
    assert torch.equal(*twice())
