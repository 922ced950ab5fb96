"""A small MAR with random weights, in memory and saved."""

from __future__ import annotations

import pytest
import torch
from transformers import BertConfig, Qwen3Config

from mar_st import MAR
from mar_st.model.encoders import PUBLISHED_PROMPTS
from mar_st.model.tokenizers import train_tokenizer

TEXTS = ["感冒发烧吃什么药", "血压高怎么办", "胃疼可以喝粥吗", "糖尿病能吃水果吗", "孩子咳嗽有痰"]
TEXTS = [*TEXTS, *PUBLISHED_PROMPTS.values()] * 4


@pytest.fixture(scope="session")
def mar() -> MAR:
    query = train_tokenizer(TEXTS, "query", vocab_size=80, max_token_length=1)
    document = train_tokenizer(TEXTS, "document", vocab_size=90, max_token_length=1)
    small = {
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "initializer_range": 0.5,
    }
    bert = BertConfig(vocab_size=len(query), hidden_size=16, max_position_embeddings=256, **small)
    qwen = Qwen3Config(
        vocab_size=len(document),
        hidden_size=32,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=256,
        **small,
    )
    torch.manual_seed(0)
    return MAR.from_encoders((bert, query), (qwen, document), dim=16, device="cpu")


@pytest.fixture
def saved(mar, tmp_path):
    mar.save_pretrained(str(tmp_path / "mar"))
    return tmp_path / "mar"
