"""Tiny encoders with random weights, built offline."""

from __future__ import annotations

import copy
import os
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoConfig, AutoModelForSequenceClassification, PreTrainedTokenizerFast

from mar_st import MAR
from tests.mar_st.train_helpers import finished, one_thread, recipe_file, unfinished  # noqa: F401 -- fixtures

if TYPE_CHECKING:
    from pathlib import Path

ALPHABET = "头疼发热吃什么药好呢感冒咳嗽怎么办高血压医生你abcdefg0123456789"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[EOS]"]


def make_tokenizer(role: str, padding_side: str = "right") -> PreTrainedTokenizerFast:
    vocabulary = {token: index for index, token in enumerate([*SPECIAL, *dict.fromkeys(ALPHABET)])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    if role == "query":
        backend.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
        )
        names = {"cls_token": "[CLS]", "sep_token": "[SEP]"}
    else:
        names = {"eos_token": "[EOS]"}
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="[UNK]", pad_token="[PAD]", padding_side=padding_side, **names
    )


def make_config(model_type: str, hidden_size: int = 32) -> Any:
    settings: dict[str, Any] = {
        "vocab_size": 64,
        "hidden_size": hidden_size,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 2 * hidden_size,
        "max_position_embeddings": 64,
        "pad_token_id": 0,
        "bos_token_id": None,
        "eos_token_id": None,
        "cls_token_id": None,
        "sep_token_id": None,
        "initializer_range": 0.2,
    }
    if model_type.startswith("qwen"):
        settings |= {"num_key_value_heads": 2, "head_dim": hidden_size // 4}
    if model_type == "llama":
        settings |= {"num_key_value_heads": 2}
    if model_type == "modernbert":
        settings |= {"initializer_cutoff_factor": 2.0}
    return AutoConfig.for_model(model_type, **settings)


def save_cross_encoder(folder: Path, labels: int, width: int = 32) -> Path:
    config = make_config("bert", width)
    config.num_labels = labels
    AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)
    make_tokenizer("query").save_pretrained(folder)
    return folder


@pytest.fixture
def gpu() -> torch.device:
    """The device of tests marked `gpu`; with MEDTEB_GPU_REHEARSAL=cpu they run without one."""
    rehearsal = os.environ.get("MEDTEB_GPU_REHEARSAL")
    if rehearsal:
        return torch.device(rehearsal)
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device; MEDTEB_GPU_REHEARSAL=cpu runs this on the CPU")
    return torch.device("cuda")


@pytest.fixture
def query_source() -> tuple[Any, Any]:
    torch.manual_seed(0)
    return make_config("gte"), make_tokenizer("query")


@pytest.fixture
def document_source() -> tuple[Any, Any]:
    torch.manual_seed(1)
    return make_config("qwen3", 64), make_tokenizer("document")


@cache
def _made() -> tuple[MAR, torch.Tensor]:
    torch.manual_seed(1)
    sides: dict[str, Any] = {"query": (make_config("gte"), make_tokenizer("query"))}
    sides["document"] = (make_config("qwen3", 64), make_tokenizer("document"))
    return MAR.from_encoders(**sides, dim=32, device="cpu"), torch.get_rng_state()


@pytest.fixture
def mar() -> MAR:
    """A MAR with random weights, made once; each test gets a copy and the random state that making leaves."""
    model, state = _made()
    torch.set_rng_state(state)
    return copy.deepcopy(model)


@pytest.fixture
def run_mar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs the command in this process: `run_mar("train", ...) -> (exit code, stdout, stderr)`."""

    def call(*args: Any) -> tuple[int, str, str]:
        from mar_st.cli import main

        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["mar", *map(str, args)])
        with pytest.raises(SystemExit) as stop:
            main()
        out, err = capsys.readouterr()
        return int(stop.value.code or 0), out, err

    return call


@pytest.fixture
def queries() -> list[str]:
    return ["头疼吃什么药", "感冒发热怎么办呢", "高血压"]


@pytest.fixture
def documents() -> list[Any]:
    return [
        {"title": "头疼", "text": "头疼吃药好"},
        "感冒发热咳嗽医生你好",
        {"title": "", "text": "高血压吃什么"},
    ]
