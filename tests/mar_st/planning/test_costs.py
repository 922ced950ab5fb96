from __future__ import annotations

import json

import pytest
import torch
from sentence_transformers.sentence_transformer.modules import Transformer
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModel

from mar_st.model.adapters import add_lora
from mar_st.model.encoders import load_encoder
from mar_st.planning.backbones import Shape, source_shape
from mar_st.planning.costs import (
    Training,
    _dry_run,
    _LiveBytes,
    _prepare,
    forward_flops,
    lora_parameters,
    pass_memory,
    training_flops,
)
from mar_st.planning.tiny import small_config
from tests.mar_st.conftest import make_config, make_tokenizer

NAMES = [
    "Alibaba-NLP/gte-multilingual-mlm-base",
    "Qwen/Qwen3-4B",
    "EleutherAI/pythia-410m",
    "google/gemma-2b",
]


def _shape(name, width=64, layers=4):
    shape = source_shape(name)
    return Shape(name, {**small_config(shape, width, layers), "vocab_size": 50}, "bfloat16")


def _model(shape):
    torch.manual_seed(0)
    return AutoModel.from_config(AutoConfig.for_model(**shape.config)).train()


@pytest.mark.parametrize("name", NAMES)
def test_operations_agree_with_torch(name):
    shape, rows, length = _shape(name), 3, 20
    model = _model(shape)
    ids = torch.zeros(rows, length, dtype=torch.long)
    with FlopCounterMode(display=False) as forward:
        states = model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
    with FlopCounterMode(display=False) as backward:
        states.sum().backward()
    # torch counts no attention on a CPU, and attention is what grows with the square of the length.
    attention = forward_flops(shape, rows, 2 * length) - 2 * forward_flops(shape, rows, length)
    linear = forward_flops(shape, rows, length) - attention / 2
    assert attention > 0
    assert forward.get_total_flops() == linear
    # The first layer needs no gradient of its input in torch's count only where embeddings are frozen.
    assert backward.get_total_flops() == pytest.approx(2 * linear)


def test_operations_of_training_depend_on_its_mode():
    shape = _shape("Qwen/Qwen3-4B")
    forward = forward_flops(shape, 2, 10)
    adapter = 2 * 2 * 10 * lora_parameters(shape, 4)
    assert training_flops(shape, 2, 10, Training("frozen")) == forward
    assert training_flops(shape, 2, 10, Training("full")) == 3 * forward
    assert training_flops(shape, 2, 10, Training("full", checkpointing=True, gradcache=True)) == 5 * forward
    assert training_flops(shape, 2, 10, Training("lora", 4)) == 2 * forward + 3 * adapter
    encoder = forward_flops(_shape(NAMES[0]), 1, 100) / forward_flops(_shape(NAMES[0]), 1, 50)
    assert encoder > 2  # attention is quadratic


def test_lora_parameters_are_those_of_the_adapter():
    config = make_config("qwen3", 64)
    transformer = load_encoder((config, make_tokenizer("document")), "document")[0]
    assert isinstance(transformer, Transformer)
    add_lora(transformer, r=4)
    trained = sum(p.numel() for p in transformer.model.parameters() if p.requires_grad)
    shape = Shape("tiny", {"model_type": "qwen3", **config.to_diff_dict()})
    assert lora_parameters(shape, 4) == trained


TRAININGS = [
    pytest.param(Training("full"), id="full"),
    pytest.param(Training("full", bf16=True), id="full-bf16"),
    pytest.param(Training("full", checkpointing=True, bf16=True), id="checkpointing"),
    pytest.param(
        Training("lora", 4, checkpointing=True, bf16=True, dtype="bfloat16"),
        id="lora",
        marks=pytest.mark.slow,
    ),
    pytest.param(Training("frozen", bf16=True), id="frozen"),
]


@pytest.mark.slow
@pytest.mark.parametrize("training", TRAININGS)
def test_memory_of_a_pass_is_what_a_real_pass_takes(training):
    shape, rows, length = _shape("Qwen/Qwen3-4B", layers=6), 5, 24
    ids = torch.zeros(rows, length, dtype=torch.long)
    mask = torch.ones_like(ids)
    mask[0, -1] = 0  # as in any batch of texts of different lengths
    with _LiveBytes() as live:
        model = _model(Shape(shape.name, {**shape.config, "vocab_size": 8}))
        _prepare(model, training)
        before = live.peak = live.now
        with (
            torch.autocast("cpu", torch.bfloat16, enabled=training.bf16),
            torch.set_grad_enabled(training.mode != "frozen"),
        ):
            states = model(input_ids=ids, attention_mask=mask).last_hidden_state
        if training.mode != "frozen":
            states[:, 0].float().sum().backward()
    assert pass_memory(shape, rows, length, training) == pytest.approx(live.peak - before, rel=0.05)


@pytest.mark.thorough(but=["frozen"])
@pytest.mark.parametrize("training", TRAININGS)
def test_memory_is_extrapolated_linearly_in_the_number_of_layers(training):
    shape = _shape("google/gemma-2b", layers=7)
    config = json.dumps(dict(shape.config), sort_keys=True)
    whole = _dry_run(config, 7, 6, 16, training)
    assert pass_memory(shape, 6, 16, training) == pytest.approx(whole, rel=0.02)


def test_live_bytes_do_not_count_freed_tensors():
    with _LiveBytes() as live:
        kept = torch.ones(1000)
        for _ in range(5):
            torch.ones(500)
    assert live.now == kept.nbytes
    assert live.peak == kept.nbytes + 2000
