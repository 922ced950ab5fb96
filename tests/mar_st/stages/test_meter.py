"""Throughput, cost and memory of training steps."""

from __future__ import annotations

import pytest
import torch

from mar_st.model.adapters import add_lora
from mar_st.model.encoders import load_encoder
from mar_st.stages.batches import BatchRecord
from mar_st.stages.meter import Meter, own_modules, peak_flops, peak_memory, step_costs
from tests.mar_st.conftest import make_config, make_tokenizer


def record(texts, length, padded, route=None):
    routes = {} if route is None else {"text": route}
    return BatchRecord(
        ["a"] * texts, {"text": ["x"] * texts}, {"text": texts * length}, {"text": texts * length**2},
        {"text": texts * padded}, routes,
    )  # fmt: skip


class Clock:
    now = 100.0

    def perf_counter(self):
        return self.now


def test_throughput_padding_and_utilisation_are_measured_without_pauses(mar, monkeypatch):
    clock = Clock()
    monkeypatch.setattr("mar_st.stages.meter.time", clock)
    meter = Meter(mar, torch.device("cpu"), bf16=True, world=1)
    meter.costs, meter.peak = step_costs(mar), 1e9
    for _ in range(2):
        meter.batch(record(4, 10, 16, "query"))
        clock.now += 2.0
    with meter.paused():
        clock.now += 50.0
    fields = meter.record()
    assert fields["texts_per_second"] == 2.0
    assert fields["tokens_per_second"] == 20.0
    assert fields["padding"] == 0.375
    cost = meter.costs["query"]
    assert fields["mfu"] == pytest.approx((cost.token * 80 + cost.square * 800) / 4 / 1e9, abs=1e-4)
    assert fields["mfu"] > 0.001
    clock.now += 1.0
    assert meter.record()["texts_per_second"] == 0.0


def test_utilisation_is_not_given_on_a_cpu(mar):
    meter = Meter(mar, torch.device("cpu"), bf16=False, world=1)
    meter.batch(record(4, 10, 16))
    assert meter.record()["mfu"] is None


def linear_weights(model):
    return sum(
        m.weight.numel()
        for n, m in model.named_modules()
        if isinstance(m, torch.nn.Linear) and "lora" not in n
    )


def test_costs_are_six_operations_per_weight_and_token(mar):
    """6 N per token if everything is trained, 2 N if nothing is; attention by its formula."""
    mar.route_modules("document")[0].requires_grad_(False)
    costs = step_costs(mar)
    query, document = (mar.route_modules(route)[0].model for route in ("query", "document"))
    assert costs["query"].token == 6 * linear_weights(query)
    assert costs["query"].square == 3 * 4 * 32 * 2  # forward and backward, scores and sum, width, layers
    assert costs["document"].token == 2 * linear_weights(document)
    assert costs["document"].square == 4 * 64 * 2 / 2  # half the tokens are not seen


def test_lora_steps_cost_no_gradients_of_frozen_weights():
    pytest.importorskip("peft", reason="LoRA needs the train extra")
    modules = load_encoder((make_config("qwen3", 64), make_tokenizer("document")), "document")
    full = linear_weights(modules[0].model)
    add_lora(modules[0], r=4, targets=("q_proj", "v_proj"))
    adapter = sum(p.numel() for n, p in modules[0].model.named_parameters() if "lora_" in n)
    costs = step_costs(torch.nn.Sequential(*modules))
    # Forward, and backward for the activations alone; the adapter in full.
    assert costs[""].token == 4 * full + 6 * adapter


def test_peak_flops_are_found_by_device_name():
    assert peak_flops("NVIDIA H100 80GB HBM3", bf16=True) == 989e12
    assert peak_flops("NVIDIA H100 PCIe", bf16=True) == 756e12
    assert peak_flops("NVIDIA H100 NVL", bf16=True) == 835e12
    assert peak_flops("NVIDIA H200", bf16=True) == 989e12
    assert peak_flops("NVIDIA H200 NVL", bf16=True) == 835e12
    assert peak_flops("NVIDIA L40S", bf16=True) == 362e12
    assert peak_flops("NVIDIA A100 80GB PCIe", bf16=True) == 312e12
    assert peak_flops("NVIDIA A100-SXM4-40GB", bf16=True) == 312e12
    assert peak_flops("NVIDIA GeForce RTX 4090", bf16=False) == pytest.approx(82.6e12)
    assert peak_flops("Some Other Card", bf16=True) is None


def test_peak_memory_is_that_of_the_process():
    before = peak_memory(torch.device("cpu"))
    held = torch.ones(80_000_000)
    grown = peak_memory(torch.device("cpu")) - before
    assert 0.1 < before < 50  # GB
    assert grown <= held.nbytes / 1e9 + 0.1


def test_the_model_inside_a_loss_is_not_searched_for_parts(mar):
    from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss

    from mar_st.losses import AsymInfoNCELoss

    inner = AsymInfoNCELoss(mar)
    outer = MatryoshkaLoss(mar, inner, [16])
    assert own_modules(outer) == [outer, inner]


class Part(torch.nn.Module):
    """A loss that reports parts, and a temperature that it learns."""

    learnable_temperature, temperature = True, 0.25

    def __init__(self, **parts):
        super().__init__()
        self.last_parts = parts


def test_parts_of_a_loss_are_the_mean_over_passes_since_the_last_record(mar):
    meter = Meter(mar, torch.device("cpu"), bf16=False, world=1)
    meter.parts([Part(mse=torch.tensor(1.0)), torch.nn.Identity()])
    meter.parts([Part(mse=3.0, kl=0.5)], scale=2)
    fields = meter.record()
    assert {name: fields[name] for name in fields if name.startswith("loss")} == {
        "loss_mse": (1.0 + 2 * 3.0) / 2, "loss_kl": 1.0
    }  # fmt: skip
    assert fields["temperature"] == 0.25
    assert not {"loss_mse", "loss_kl", "temperature"} & set(meter.record())


def test_columns_without_a_route_have_no_cost_of_their_own(mar):
    meter = Meter(mar, torch.device("cpu"), bf16=False, world=1)
    meter.costs, meter.peak = step_costs(mar), 1e9
    meter.batch(record(4, 10, 16))
    fields = meter.record()
    assert (fields["mfu"], fields["padding"]) == (None, 0.375)


def test_encoders_of_unknown_architectures_have_no_cost(mar, monkeypatch):
    config = type(mar.route_modules("query")[0].model.config)
    monkeypatch.setattr(config, "model_type", "unheard-of")
    assert set(step_costs(mar)) == {"document"}
