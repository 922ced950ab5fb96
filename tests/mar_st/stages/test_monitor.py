from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import pytest
import torch

from mar_st.model.adapters import add_lora
from mar_st.model.encoders import load_encoder
from mar_st.stages import monitor
from mar_st.stages.batches import BatchRecord
from mar_st.stages.meter import Meter, own_modules, peak_flops, peak_memory, step_costs
from mar_st.stages.monitor import MetricsFile, evaluation_results, plot_run
from tests.mar_st.conftest import make_config, make_tokenizer

# -- metrics.jsonl --


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_resumed_run_keeps_the_records_up_to_its_checkpoint(tmp_path):
    path = tmp_path / "metrics.jsonl"
    written = [{"step": 20, "loss": 2.0}, {"step": 40, "loss": 1.0}, {"step": 40, "train_runtime": 3.0}]
    # The process was killed in the middle of a line.
    path.write_text("".join(json.dumps(row) + "\n" for row in written) + '{"step": 60, "lo', encoding="utf-8")
    metrics = MetricsFile(path)

    def start(step):
        metrics.on_train_begin(None, SimpleNamespace(global_step=step, is_world_process_zero=True), None)
        return [row["step"] for row in rows(path)]

    assert start(40) == [20, 40]
    assert start(30) == [20]
    state = SimpleNamespace(global_step=50, is_world_process_zero=True)
    metrics.on_log(None, state, None, logs={"loss": 0.5, "mfu": None})
    assert rows(path)[-1] == {"step": 50, "loss": 0.5, "mfu": None}
    state.is_world_process_zero = False
    metrics.on_log(None, state, None, logs={"loss": 9.0})
    assert rows(path)[-1]["loss"] == 0.5
    assert start(0) == []


def test_evaluation_results_are_read_from_the_records():
    results = evaluation_results(
        [
            {"step": 5, "loss": 1.0},
            {"step": 5, "eval_ndcg@10": 0.5, "eval_runtime": 2.0, "eval_note": "text"},
        ]
    )
    assert results == [(5, {"ndcg@10": 0.5})]


# -- loss.png --


def write(folder, *records):
    folder.mkdir(exist_ok=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


def test_without_matplotlib_there_is_one_line_and_no_plot(tmp_path, monkeypatch):
    warned = []
    monkeypatch.setattr(monitor.logger, "warning_once", warned.append)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    write(tmp_path, {"step": 1, "loss": 1.0})
    assert plot_run(tmp_path) is None
    assert len(warned) == 1
    assert "matplotlib" in warned[0]
    assert not (tmp_path / "loss.png").exists()


def test_the_plot_shows_loss_parts_and_scores(tmp_path, monkeypatch):
    figures = pytest.importorskip("matplotlib.figure", reason="plots need the report extra")
    curves = {}
    save = figures.Figure.savefig

    def look(figure, *where, **options):
        for axes in figure.axes:
            curves.update({line.get_label(): [*map(tuple, line.get_data())] for line in axes.get_lines()})
        save(figure, *where, **options)

    monkeypatch.setattr(figures.Figure, "savefig", look)
    write(
        tmp_path,
        {"step": 0, "eval_ndcg@10": 0.1, "eval_runtime": 3.0},
        {"step": 20, "loss": 2.0, "loss_mse": 0.5},
        {"step": 40, "loss": 1.0, "loss_mse": 0.25},
        {"step": 40, "eval_ndcg@10": 0.3},
    )
    assert plot_run(tmp_path) == tmp_path / "loss.png"
    assert curves == {
        "loss": [(20, 40), (2.0, 1.0)],
        "loss_mse": [(20, 40), (0.5, 0.25)],
        "ndcg@10": [(0, 40), (0.1, 0.3)],
    }


def test_the_plot_is_an_image(tmp_path):
    pytest.importorskip("matplotlib", reason="plots need the report extra")
    write(tmp_path, {"step": 1, "loss": 1.0}, {"step": 2, "loss": float("nan")}, {"step": 2, "eval_map": 0.5})
    plot = plot_run(tmp_path)
    assert plot.read_bytes()[1:4] == b"PNG"


def test_without_records_there_is_no_plot(tmp_path):
    assert plot_run(tmp_path) is None


# -- meter --


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
