from __future__ import annotations

import math

import pytest
import torch
from datasets import Dataset

from mar_st.errors import MarError
from mar_st.losses.asym_infonce import AsymInfoNCELoss
from mar_st.model.adapters import add_lora
from mar_st.stages.collate import COUNTS_KEY
from mar_st.stages.fit import _Records, fit, transformers_of
from mar_st.stages.trainer import StageTrainer, read_metrics
from tests.mar_st.stages.helpers import WORDS, changed, encoder, mar, settings, stage, weights

ROUTES = {"query": "query", "positive": "document"}


def pairs(rows=32, salt=0):
    texts = [a + b + c for a in WORDS for b in WORDS for c in WORDS]
    return Dataset.from_dict(
        {"query": texts[salt : salt + rows], "positive": texts[100 + salt : 100 + salt + rows]}
    )


def train(folder, model=None, data=None, loss=AsymInfoNCELoss, options=None, **fields):
    model, data = model or encoder(), data or {"a": pairs()}
    fit(model, data, loss(model), stage("contrastive", **fields), settings(folder), **(options or {}))
    return model


def spied(monkeypatch, take):
    """Values that `take(kwargs)` gives at the end of every step."""
    values = []
    monkeypatch.setattr(_Records, "on_step_end", lambda self, *args, **kwargs: values.append(take(kwargs)))
    return values


def batches_of(monkeypatch):
    """The tensors of every batch that is trained on."""
    batches = []
    original = StageTrainer.training_step

    def training_step(self, model, inputs, num_items_in_batch=None):
        batches.append(dict(inputs))
        return original(self, model, inputs, num_items_in_batch)

    monkeypatch.setattr(StageTrainer, "training_step", training_step)
    return batches


@pytest.mark.parametrize(
    ("schedule", "shape"),
    [
        ("linear", [1, 2, 1.75, 1.5, 1.25, 1, 0.75, 0.5, 0.25, 0]),
        ("constant", [1, *[2] * 9]),
        ("cosine", [1, *[1 + math.cos(math.pi * step / 8) for step in range(9)]]),
    ],
)
def test_schedules_have_their_shape_after_the_warm_up(tmp_path, monkeypatch, schedule, shape):
    rates = spied(monkeypatch, lambda kwargs: kwargs["lr_scheduler"].get_last_lr()[0])
    train(tmp_path, schedule=schedule, warmup_ratio=0.2, learning_rate=2e-3, max_steps=10)
    assert rates == pytest.approx([value * 1e-3 for value in shape], abs=1e-9)


def test_a_learnt_temperature_does_not_decay(tmp_path, monkeypatch):
    def take(kwargs):
        groups = kwargs["optimizer"].param_groups
        return {(p.ndim, group["weight_decay"]) for group in groups for p in group["params"]}

    values = spied(monkeypatch, take)
    train(
        tmp_path,
        loss=lambda model: AsymInfoNCELoss(model, temperature=0.1, learnable_temperature=True),
        weight_decay=0.3,
        max_steps=1,
    )
    assert {decay for dimensions, decay in values[0] if dimensions == 0} == {0.0}
    assert (2, 0.3) in values[0]


def test_each_route_has_its_own_learning_rate(tmp_path):
    model = mar()
    before = weights(model)
    options = {"router_mapping": {"a": ROUTES}, "learning_rate_mapping": {r"sub_modules\.document\.": 1e-9}}
    train(tmp_path, model=model, options=options)
    moved = {
        route: max((model.state_dict()[n] - before[n]).abs().max() for n in before if f".{route}." in n)
        for route in ROUTES.values()
    }
    assert moved["document"] < 1e-6
    assert moved["query"] > 1e-3


def test_checkpointed_activations_serve_lora_and_leave_a_frozen_route_alone(tmp_path, monkeypatch):
    used = spied(
        monkeypatch,
        lambda kwargs: [model.is_activation_checkpointing for model in transformers_of(kwargs["model"])],
    )
    trained = []
    for enabled in (False, True):
        model = mar(dropout=0.1)
        model.route_modules("query")[0].requires_grad_(False)
        torch.manual_seed(2)
        add_lora(model.route_modules("document")[0], r=2, dropout=0.0)
        before = weights(model)
        train(
            tmp_path / str(enabled),
            model=model,
            options={"router_mapping": {"a": ROUTES}},
            gradient_checkpointing=enabled,
        )
        assert all("lora_" in name for name in changed(model, before))
        trained.append(weights(model))
    assert sorted(used[0]) == [False, False]
    assert sorted(used[-1]) == [False, True]
    assert any(not torch.equal(trained[1][name], before[name]) for name in before)
    assert all(torch.allclose(trained[0][name], trained[1][name], atol=1e-6) for name in trained[0])


@pytest.mark.parametrize("mixed", [True, False])
def test_a_batch_holds_the_prompts_of_its_sources(tmp_path, monkeypatch, mixed):
    batches = batches_of(monkeypatch)
    prompts = {"a": {"query": "头疼"}, "b": {"query": "发热", "positive": "医生"}}
    data = {"a": pairs(24), "b": pairs(24, salt=50)}
    kind = "mixed" if mixed else "one-source"
    model = train(tmp_path, data=data, options={"prompts": prompts}, batches=kind, epochs=1, max_steps=None)
    expected = {
        (
            column,
            tuple(model.preprocess([prompts[name].get(column, "") + text])["input_ids"][0].tolist()),
        ): name
        for name in data
        for column in ROUTES
        for text in data[name][column]
    }
    assert len(batches) == 6
    seen = []
    for batch in batches:
        sources = set()
        for column in ROUTES:
            mask = batch[f"{column}_attention_mask"].bool()
            for row, kept in zip(batch[f"{column}_input_ids"], mask, strict=True):
                seen.append((column, tuple(row[kept].tolist())))
                sources.add(expected[seen[-1]])
        assert len(sources) == 1 + mixed
    assert sorted(seen) == sorted(expected)


def test_mixtures_that_cannot_share_a_batch_are_refused(tmp_path):
    data = {"qa": pairs(16), "sts": pairs(16, salt=50)}
    routes = {"qa": ROUTES, "sts": {"query": "query", "positive": "query"}}
    with pytest.raises(MarError, match="the same columns and routes"):
        train(tmp_path, model=mar(), data=data, options={"router_mapping": routes}, batches="mixed")
    data["sts"] = data["sts"].add_column("negative_1", pairs(16, salt=70)["query"][:])
    with pytest.raises(MarError, match="the same columns"):
        train(tmp_path, data=data, batches="mixed")


class Halved(AsymInfoNCELoss):
    """A loss that tells a part: half of its value."""

    def forward(self, sentence_features, labels):
        loss = super().forward(sentence_features, labels)
        self.last_parts = {"half": loss.detach() / 2}
        return loss


def test_records_hold_the_parts_of_the_loss_and_the_throughput(tmp_path):
    train(tmp_path, loss=lambda model: Halved(model, learnable_temperature=True), max_steps=23)
    first, last, summary = read_metrics(tmp_path / "run/01-stage/metrics.jsonl")
    assert [row["step"] for row in (first, last, summary)] == [20, 23, 23]
    for row in (first, last):
        assert row["texts_per_second"] > 0
        assert row["tokens_per_second"] > 2 * row["texts_per_second"]
        assert row["loss_half"] == pytest.approx(row["loss"] / 2, rel=1e-3)
        assert row["grad_norm"] > 0
    assert last["learning_rate"] < first["learning_rate"]
    assert last["temperature"] != first["temperature"]
    assert "train_loss" not in summary  # the trainer's is wrong after a resume


def test_tokens_are_counted_without_padding(tmp_path, monkeypatch):
    batches = batches_of(monkeypatch)
    train(tmp_path, max_steps=1)
    texts, tokens = batches[0][COUNTS_KEY]
    assert texts == 2 * 8
    assert tokens == sum(int(batches[0][f"{column}_attention_mask"].sum()) for column in ROUTES)


def test_a_loss_that_is_not_finite_stops_the_stage(tmp_path):
    class Broken(AsymInfoNCELoss):
        def forward(self, sentence_features, labels):
            return super().forward(sentence_features, labels) * float("nan")

    with pytest.raises(MarError, match="lower learning_rate"):
        train(tmp_path, loss=Broken, max_steps=2)
