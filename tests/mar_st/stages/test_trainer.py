from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from datasets import Dataset
from sentence_transformers.base.losses.merged_forward import embed_columns

from mar_st.errors import MarError
from mar_st.losses import AsymInfoNCELoss
from mar_st.model.adapters import add_lora
from mar_st.planning.launch import LaunchError, rows_per_device
from mar_st.stages.monitor import read_metrics
from mar_st.stages.samplers import BatchError
from tests.mar_st.stages.trainer_helpers import (
    ROUTES,
    asymmetric,
    checkpointed,
    encoder,
    make_stage,
    pairs,
    records_of,
    spied,
    train,
    weights,
    words,
)

# -- optimisation settings --


@pytest.mark.thorough
def test_steps_follow_max_steps_or_epochs(tmp_path, monkeypatch):
    steps = spied(monkeypatch, lambda state, kwargs: state.global_step)
    train(tmp_path / "a", max_steps=6)
    train(tmp_path / "b", max_steps=None, epochs=1.5)
    assert steps == [*range(1, 7), *range(1, 7)]
    train(tmp_path / "c", max_steps=3)
    assert steps[12:] == [1, 2, 3]


@pytest.mark.thorough
@pytest.mark.usefixtures("drawn")
def test_a_stage_plots_its_loss(tmp_path):
    pytest.importorskip("matplotlib", reason="plots need the report extra")
    train(tmp_path, max_steps=3)
    (plot,) = tmp_path.rglob("loss.png")
    assert plot.read_bytes()[1:4] == b"PNG"


@pytest.mark.thorough(but=["cosine-shape2"])
@pytest.mark.parametrize(
    ("schedule", "shape"),
    [
        ("linear", [1, 2, 1.75, 1.5, 1.25, 1, 0.75, 0.5, 0.25, 0]),
        ("constant", [1, *[2] * 9]),
        ("cosine", [1, *[1 + math.cos(math.pi * step / 8) for step in range(9)]]),
    ],
)
def test_schedules_have_their_shape_after_the_warm_up(tmp_path, monkeypatch, schedule, shape):
    rates = spied(monkeypatch, lambda state, kwargs: kwargs["lr_scheduler"].get_last_lr()[0])
    train(tmp_path, schedule=schedule, warmup_ratio=0.2, learning_rate=2e-3, max_steps=10)
    assert rates == pytest.approx([value * 1e-3 for value in shape], abs=1e-9)


@pytest.mark.thorough
def test_weight_decay_and_gradient_norm_reach_the_optimizer(tmp_path, monkeypatch):
    def take(state, kwargs):
        return {group["weight_decay"] for group in kwargs["optimizer"].param_groups}

    decays = spied(monkeypatch, take)
    before = weights(encoder())
    clipped = weights(train(tmp_path / "a", weight_decay=0.3, max_grad_norm=1e-9, max_steps=2))
    assert decays[0] == {0.3, 0.0}
    # With gradients clipped to next to nothing, Adam's own epsilon holds the weights.
    moved = {name: (clipped[name] - before[name]).abs().max() for name in before}
    free = weights(train(tmp_path / "b", max_steps=2))
    assert max(moved.values()) < 0.3 * max((free[name] - before[name]).abs().max() for name in before)


def test_a_learnt_temperature_does_not_decay(tmp_path, monkeypatch):
    def take(state, kwargs):
        return {
            (parameter.ndim, group["weight_decay"])
            for group in kwargs["optimizer"].param_groups
            for parameter in group["params"]
        }

    def loss(model):
        return AsymInfoNCELoss(model, temperature=0.1, learnable_temperature=True)

    values = spied(monkeypatch, take)
    train(tmp_path, loss=loss, weight_decay=0.3, max_steps=1)
    assert {decay for dimensions, decay in values[0] if dimensions == 0} == {0.0}
    assert (2, 0.3) in values[0]


def test_two_learning_rates_reach_the_optimizer(tmp_path, monkeypatch):
    def take(state, kwargs):
        counts = Counter()
        for group in kwargs["optimizer"].param_groups:
            counts[group["initial_lr"]] += sum(p.numel() for p in group["params"] if p.requires_grad)
        return counts

    groups = spied(monkeypatch, take)
    model = asymmetric()
    mapping = {"learning_rate_mapping": {r"sub_modules\.document\.": 7e-4}}
    train(tmp_path, model=model, arguments=mapping, learning_rate=2e-3, max_steps=1)
    sizes = {}
    for route in ("query", "document"):
        parameters = [p for module in model.route_modules(route) for p in module.parameters()]
        sizes[route] = sum(p.numel() for p in parameters if p.requires_grad)
    assert groups[0] == {2e-3: sizes["query"], 7e-4: sizes["document"]}


@pytest.mark.thorough
@pytest.mark.parametrize("model", [encoder, asymmetric])
def test_checkpointed_activations_give_the_same_weights(tmp_path, monkeypatch, model):
    used = spied(monkeypatch, lambda state, kwargs: checkpointed(kwargs["model"]))
    plain = train(tmp_path / "a", model=model(dropout=0.1))
    saving = train(tmp_path / "b", model=model(dropout=0.1), gradient_checkpointing=True)
    assert [any(flags) for flags in used] == [False] * 6 + [True] * 6
    assert all(
        torch.allclose(a, b, atol=1e-6) for a, b in zip(plain.parameters(), saving.parameters(), strict=True)
    )
    assert not any(checkpointed(saving))


@pytest.mark.thorough
def test_checkpointing_serves_lora_and_leaves_a_frozen_route_alone(tmp_path, monkeypatch):
    pytest.importorskip("peft", reason="LoRA needs the train extra")

    used = spied(monkeypatch, lambda state, kwargs: checkpointed(kwargs["model"]))
    trained = []
    for folder, enabled in (("a", False), ("b", True)):
        model = asymmetric()
        model.route_modules("query")[0].requires_grad_(False)
        add_lora(model.route_modules("document")[0], r=2, dropout=0.0)
        before = weights(model)
        train(tmp_path / folder, model=model, gradient_checkpointing=enabled)
        changed = {name for name, value in weights(model).items() if not torch.equal(value, before[name])}
        assert changed
        assert all("lora_" in name for name in changed)
        trained.append(weights(model))
    assert sorted(used[-1]) == [False, True]
    assert all(torch.allclose(trained[0][name], trained[1][name], atol=1e-6) for name in trained[0])


@pytest.mark.thorough
def test_a_frozen_route_has_no_dropout(tmp_path):
    """A frozen encoder gives the vectors that it would give for an index."""
    vectors = []

    class Loss(AsymInfoNCELoss):
        def forward(self, sentence_features, labels):
            queries, documents = list(sentence_features)
            vectors.append([self.model(dict(queries))["sentence_embedding"].detach() for _ in range(2)])
            return embed_columns(self.model, [documents])[0].square().sum(dim=1).mean()

    model = asymmetric(dropout=0.5)
    for frozen in (False, True):
        model.route_modules("query")[0].requires_grad_(not frozen)
        train(tmp_path / str(frozen), model=model, loss=Loss, max_steps=1)
    assert not torch.equal(*vectors[0])
    assert torch.equal(*vectors[1])


# -- batches --


def test_mixed_batches_carry_the_prompt_of_each_row(tmp_path, monkeypatch):
    records = records_of(monkeypatch)
    prompts = {"a": {"query": "头疼"}, "b": {"query": "发热", "positive": "医生"}}
    data = {"a": pairs(24), "b": pairs(24, salt=5)}
    model = train(
        tmp_path, data=data, arguments={"prompts": prompts}, batches="mixed", epochs=1, max_steps=None
    )
    assert len(records) == 6
    assert all(set(record.sources) == {"a", "b"} for record, _ in records)
    texts = {
        name: {c: dict.fromkeys(prompts[name].get(c, "") + t for t in data[name][c]) for c in ROUTES}
        for name in data
    }
    used = []
    for record, tokens in records:
        for column in ROUTES:
            for source, text in zip(record.sources, record.texts[column], strict=True):
                assert text in texts[source][column]
                used.append((column, text))
            expected = model.preprocess(record.texts[column])["input_ids"]
            assert torch.equal(tokens[f"{column}_input_ids"], expected)
    assert len(set(used)) == 2 * 48
    # The prompt in the text is what sentence-transformers does with a prompt.
    single = model.preprocess(data["a"]["query"][:3], prompt="头疼")["input_ids"]
    assert torch.equal(
        single, model.preprocess([f"头疼{text}" for text in data["a"]["query"][:3]])["input_ids"]
    )


def test_a_batch_has_one_source_by_default(tmp_path, monkeypatch):
    records = records_of(monkeypatch)
    prompts = {"a": {"query": "头疼"}}
    data = {"a": pairs(24), "b": pairs(16, salt=5)}
    model = train(tmp_path, data=data, arguments={"prompts": prompts}, epochs=1, max_steps=None)
    sources = [set(record.sources) for record, _ in records]
    assert [sources.count({name}) for name in "ab"] == [3, 2]
    for record, tokens in records:
        prompt = prompts.get(record.sources[0], {}).get("query")
        expected = model.preprocess(record.texts["query"], prompt=prompt)["input_ids"]
        assert torch.equal(tokens["query_input_ids"], expected)


def test_mixtures_that_cannot_share_a_batch_are_refused(tmp_path):
    model = asymmetric()
    data = {"qa": pairs(16), "sts": pairs(16, salt=5)}
    routes = {"qa": ROUTES, "sts": {"query": "query", "positive": "query"}}
    with pytest.raises(BatchError, match=r"'positive' goes to 'document' for 'qa' and to 'query' for 'sts'"):
        train(tmp_path, model=model, data=data, arguments={"router_mapping": routes}, batches="mixed")
    data["sts"] = data["sts"].add_column("negative_1", words(16, 9))
    with pytest.raises(BatchError, match="the same columns"):
        train(tmp_path, model=model, data=data, batches="mixed")
    data = {"a": pairs(), "b": pairs()}
    with pytest.raises(MarError, match="one loss for all"):
        train(tmp_path, data=data, loss=lambda m: dict.fromkeys("ab", AsymInfoNCELoss(m)), batches="mixed")


@pytest.mark.thorough
def test_length_groups_pad_less(tmp_path):
    long = Dataset.from_dict(
        {
            "query": words(64, 0),
            "positive": [t + "药" * (40 if i % 8 == 0 else 2) for i, t in enumerate(words(64, 11))],
        }
    )
    shares = []
    for groups in (0, 8):
        train(tmp_path / str(groups), data={"a": long}, length_groups=groups, epochs=1, max_steps=None)
        shares.append(read_metrics(tmp_path / str(groups) / "metrics.jsonl")[0]["padding"])
    assert shares[1] < 0.5 * shares[0]


def test_a_batch_that_devices_cannot_share_is_refused():
    assert rows_per_device(make_stage(batch_size=12), 3) == 4
    with pytest.raises(LaunchError, match="Choose a multiple of 5, for instance 10"):
        rows_per_device(make_stage(batch_size=12), 5)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("no json", "not a readable DeepSpeed configuration"),
        ('{"zero_optimization": {"stage": 3}}', "stages 0 to 2 are supported"),
        ('{"zero_optimization": {"stage": 2}}', "pip install deepspeed"),
    ],
)
def test_unusable_deepspeed_configurations_are_refused(tmp_path, monkeypatch, content, message):
    monkeypatch.setattr("mar_st.planning.launch.find_spec", lambda name: None)
    path = tmp_path / "ds.json"
    path.write_text(content)
    with pytest.raises(LaunchError, match=message):
        train(tmp_path / "run", settings={"deepspeed": path})
    monkeypatch.setenv("MAR_DEEPSPEED", str(path))
    with pytest.raises(LaunchError, match=message):
        train(tmp_path / "run")


# -- records --


class Partial(AsymInfoNCELoss):
    """A loss that tells its parts: the number of its calls and half its value."""

    calls = 0

    def forward(self, sentence_features, labels):
        loss = super().forward(sentence_features, labels)
        self.calls += 1
        self.last_parts = {"calls": float(self.calls), "half": loss.detach() / 2}
        return loss


def test_records_have_all_fields(tmp_path):
    train(tmp_path, loss=lambda model: Partial(model, learnable_temperature=True), max_steps=23)
    first, last, summary = read_metrics(tmp_path / "metrics.jsonl")
    assert [row["step"] for row in (first, last, summary)] == [20, 23, 23]
    for row in (first, last):
        assert row["texts_per_second"] > 0
        assert row["tokens_per_second"] > 2 * row["texts_per_second"]
        assert 0 < row["padding"] < 1
        assert 0.05 < row["peak_memory_gb"] < 50
        assert row["mfu"] is None
        assert row["grad_norm"] > 0
        assert row["loss_half"] == pytest.approx(row["loss"] / 2, rel=1e-5)
    assert first["loss_calls"] == sum(range(1, 21)) / 20
    assert last["loss_calls"] == 22
    assert last["learning_rate"] < first["learning_rate"]
    assert last["temperature"] != first["temperature"]
    assert summary["train_loss"] > 0


def test_padding_and_tokens_are_counted_from_the_masks(tmp_path, monkeypatch):
    records = records_of(monkeypatch)
    model = train(tmp_path, max_steps=1)
    ((record, _),) = records
    for column in ROUTES:
        mask = model.preprocess(record.texts[column])["attention_mask"]
        lengths = mask.sum(dim=1)
        assert record.tokens[column] == lengths.sum()
        assert record.squares[column] == (lengths**2).sum()
        assert record.padded[column] == mask.numel() > lengths.sum()


@pytest.mark.thorough
def test_tensorboard_holds_the_records(tmp_path):
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    train(tmp_path, max_steps=3)
    events = accumulators.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert {"train/loss", "train/texts_per_second", "train/grad_norm"} <= set(events.Tags()["scalars"])
    (scalar,) = events.Scalars("train/loss")
    assert scalar.step == 3
    assert scalar.value == pytest.approx(read_metrics(tmp_path / "metrics.jsonl")[0]["loss"])
