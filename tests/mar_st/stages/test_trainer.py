from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.evaluation import BaseEvaluator
from sentence_transformers.base.losses.merged_forward import embed_columns
from sentence_transformers.base.modules import Normalize, Transformer

from mar_st import MAR
from mar_st.adapters import add_lora
from mar_st.encoders import load_encoder
from mar_st.errors import MarError
from mar_st.losses import AsymInfoNCELoss
from mar_st.schema import ContrastiveStage, Evaluation
from mar_st.stages import trainer as trainer_module
from mar_st.stages.arguments import ArgumentsError, rows_per_device
from mar_st.stages.monitor import read_metrics
from mar_st.stages.samplers import BatchError
from mar_st.stages.trainer import MetricsFile, Settings, StageTrainer, fit
from mar_st.stages.watch import NonFiniteError
from tests.mar_st.conftest import ALPHABET, make_config, make_tokenizer

LETTERS = list(dict.fromkeys(ALPHABET))


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def words(number, salt):
    """Distinct texts of 2 to 9 letters, the same in every process."""
    base = len(LETTERS)
    return [
        LETTERS[(i + salt) % base] + LETTERS[(i // base + salt) % base] + LETTERS[(7 * i) % base] * (i % 8)
        for i in range(number)
    ]


def pairs(rows=32, salt=0):
    return Dataset.from_dict({"query": words(rows, salt), "positive": words(rows, salt + 11)})


def encoder(dropout=0.0):
    torch.manual_seed(0)
    config = make_config("gte", 16)
    config.hidden_dropout_prob = dropout
    modules = load_encoder((config, make_tokenizer("query")), "query")
    return SentenceTransformer(modules=[*modules, Normalize()], device="cpu")


def asymmetric(dropout=0.0):
    torch.manual_seed(1)
    config = make_config("gte", 16)
    config.hidden_dropout_prob = dropout
    return MAR.from_encoders(
        query=(config, make_tokenizer("query")),
        document=(make_config("qwen3", 32), make_tokenizer("document")),
        dim=16,
        device="cpu",
    )


def make_stage(**fields):
    defaults = {"batch_size": 8, "learning_rate": 5e-3, "max_steps": 6, "temperature": 0.1}
    return ContrastiveStage(stage="contrastive", name="tiny", side="query", **{**defaults, **fields})


def make_settings(folder, **fields):
    return Settings(folder, **{"seed": 3, "save_steps": 1000, **fields})


ROUTES = {"query": "query", "positive": "document"}


def train(folder, model=None, data=None, loss=AsymInfoNCELoss, settings=None, arguments=None, **fields):
    model = model or encoder()
    data = data or {"a": pairs()}
    mapping = dict.fromkeys(data, ROUTES) if isinstance(model, MAR) else None
    options = {"router_mapping": mapping, **(arguments or {})}
    fit(model, data, loss(model), make_stage(**fields), make_settings(folder, **(settings or {})), **options)
    return model


def weights(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def equal(first, second):
    return all(torch.equal(first[name], second[name]) for name in first)


def spied(monkeypatch, take):
    """Values that `take(state, kwargs)` gives at the end of every step."""
    found = []

    def on_step_end(self, args, state, control, **kwargs):
        found.append(take(state, kwargs))

    monkeypatch.setattr(MetricsFile, "on_step_end", on_step_end, raising=False)
    return found


def checkpointed(model):
    """Whether each encoder of a model computes its activations again."""
    return [m.model.is_activation_checkpointing for m in model.modules() if isinstance(m, Transformer)]


def records_of(monkeypatch):
    """The record of every batch that is trained on."""
    found = []
    original = StageTrainer.training_step

    def training_step(self, model, inputs, num_items_in_batch=None):
        found.append((inputs["record"], {key: inputs[key] for key in inputs if key.endswith("input_ids")}))
        return original(self, model, inputs, num_items_in_batch)

    monkeypatch.setattr(StageTrainer, "training_step", training_step)
    return found


# -- optimisation settings --


def test_steps_follow_max_steps_or_epochs(tmp_path, monkeypatch):
    steps = spied(monkeypatch, lambda state, kwargs: state.global_step)
    train(tmp_path / "a", max_steps=6)
    train(tmp_path / "b", max_steps=None, epochs=1.5)
    assert steps == [*range(1, 7), *range(1, 7)]
    train(tmp_path / "c", max_steps=3)
    assert steps[12:] == [1, 2, 3]


@pytest.mark.parametrize(
    ("schedule", "shape"),
    [
        ("linear", [1, 2, 1.75, 1.5, 1.25, 1, 0.75, 0.5, 0.25, 0]),
        ("constant", [1, *[2] * 9]),
        ("cosine", [1, *[1 + math.cos(math.pi * step / 8) for step in range(9)]]),
    ],
)
def test_schedules_after_the_warm_up(tmp_path, monkeypatch, schedule, shape):
    rates = spied(monkeypatch, lambda state, kwargs: kwargs["lr_scheduler"].get_last_lr()[0])
    train(tmp_path, schedule=schedule, warmup_ratio=0.2, learning_rate=2e-3, max_steps=10)
    assert rates == pytest.approx([value * 1e-3 for value in shape], abs=1e-9)


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
    seen = records_of(monkeypatch)
    prompts = {"a": {"query": "头疼"}, "b": {"query": "发热", "positive": "医生"}}
    data = {"a": pairs(24), "b": pairs(24, salt=5)}
    model = train(
        tmp_path, data=data, arguments={"prompts": prompts}, batches="mixed", epochs=1, max_steps=None
    )
    assert len(seen) == 6
    assert all(set(record.sources) == {"a", "b"} for record, _ in seen)
    texts = {
        name: {c: dict.fromkeys(prompts[name].get(c, "") + t for t in data[name][c]) for c in ROUTES}
        for name in data
    }
    used = []
    for record, tokens in seen:
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


def test_one_source_per_batch_by_default(tmp_path, monkeypatch):
    seen = records_of(monkeypatch)
    prompts = {"a": {"query": "头疼"}}
    data = {"a": pairs(24), "b": pairs(16, salt=5)}
    model = train(tmp_path, data=data, arguments={"prompts": prompts}, epochs=1, max_steps=None)
    sources = [set(record.sources) for record, _ in seen]
    assert [sources.count({name}) for name in "ab"] == [3, 2]
    for record, tokens in seen:
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
    with pytest.raises(ArgumentsError, match="Choose a multiple of 5, for instance 10"):
        rows_per_device(make_stage(batch_size=12), 5)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("no json", "no readable DeepSpeed configuration"),
        ('{"zero_optimization": {"stage": 3}}', "stages 0 to 2 are supported"),
        ('{"zero_optimization": {"stage": 2}}', "pip install deepspeed"),
    ],
)
def test_deepspeed_configurations_that_cannot_be_used(tmp_path, monkeypatch, content, message):
    monkeypatch.setattr("mar_st.stages.arguments.find_spec", lambda name: None)
    path = tmp_path / "ds.json"
    path.write_text(content)
    with pytest.raises(ArgumentsError, match=message):
        train(tmp_path / "run", settings={"deepspeed": path})
    monkeypatch.setenv("MAR_DEEPSPEED", str(path))
    with pytest.raises(ArgumentsError, match=message):
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


def test_fields_of_the_records(tmp_path):
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
    seen = records_of(monkeypatch)
    model = train(tmp_path, max_steps=1)
    ((record, _),) = seen
    for column in ROUTES:
        mask = model.preprocess(record.texts[column])["attention_mask"]
        lengths = mask.sum(dim=1)
        assert record.tokens[column] == lengths.sum()
        assert record.squares[column] == (lengths**2).sum()
        assert record.padded[column] == mask.numel() > lengths.sum()


def test_tensorboard_holds_the_records(tmp_path):
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    train(tmp_path, max_steps=3)
    events = accumulators.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert {"train/loss", "train/texts_per_second", "train/grad_norm"} <= set(events.Tags()["scalars"])
    (scalar,) = events.Scalars("train/loss")
    assert scalar.step == 3
    assert scalar.value == pytest.approx(read_metrics(tmp_path / "metrics.jsonl")[0]["loss"])


# -- evaluation --


class Scores(BaseEvaluator):
    """Evaluates with a new score each time, and uses up random numbers."""

    def __init__(self, fields):
        super().__init__()
        self.steps: list[int] = []
        self.fields = fields

    def __call__(self, model, output_path=None, epoch=-1, steps=-1):
        assert not model.training
        torch.rand(7)
        self.steps.append(steps)
        return {"ndcg@10": 0.1 * len(self.steps)}


@pytest.fixture
def scores(monkeypatch):
    made = []

    def evaluator(evaluation):
        made.append(None if evaluation is None else Scores(evaluation))
        return made[-1]

    monkeypatch.setattr(trainer_module, "_evaluator", evaluator)
    return made


def test_evaluation_at_the_start_in_between_and_at_the_end(tmp_path, scores):
    evaluation = Evaluation(path="dev", every=4)
    model = train(tmp_path / "a", model=encoder(0.2), settings={"evaluation": evaluation}, max_steps=10)
    assert scores[0].steps == [0, 4, 8, 10]
    rows = [row for row in read_metrics(tmp_path / "a" / "metrics.jsonl") if "eval_ndcg@10" in row]
    assert [(row["step"], row["eval_ndcg@10"]) for row in rows] == [
        (0, 0.1), (4, 0.2), (8, pytest.approx(0.3)), (10, 0.4)
    ]  # fmt: skip
    # Looking does not change what is seen: dropout's random numbers are those of a run without evaluation.
    assert equal(weights(model), weights(train(tmp_path / "b", model=encoder(0.2), max_steps=10)))


# -- stopping and going on --


class _Killed(BaseException):
    pass


def killed_after(step, monkeypatch):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == step:
            raise _Killed

    monkeypatch.setattr(MetricsFile, "on_step_end", on_step_end, raising=False)


@pytest.mark.parametrize("kill", [1, 4, 9])
def test_a_killed_run_of_mixed_length_groups_resumes_to_the_same_weights(tmp_path, monkeypatch, scores, kill):
    data = {"a": pairs(24), "b": pairs(20, salt=5)}
    evaluation = Evaluation(path="dev", every=3)
    options = {
        "data": data, "settings": {"save_steps": 2, "evaluation": evaluation}, "batches": "mixed",
        "length_groups": 2, "max_steps": 12, "gradient_checkpointing": True,
    }  # fmt: skip
    expected = weights(train(tmp_path / "whole", model=encoder(0.2), **options))
    with monkeypatch.context() as patch:
        killed_after(kill, patch)
        with pytest.raises(_Killed):
            train(tmp_path / "killed", model=encoder(0.2), **options)
    resumed = weights(train(tmp_path / "killed", model=encoder(0.2), **options))
    assert equal(resumed, expected)
    assert not equal(expected, weights(encoder(0.2)))
    last = (kill - 1) // 2 * 2  # it dies before that step's checkpoint
    assert scores[2].steps == [step for step in (0, 3, 6, 9, 12) if step > last or last == 0]
    steps = [
        [row["step"] for row in read_metrics(tmp_path / run / "metrics.jsonl")] for run in ("whole", "killed")
    ]
    assert steps[0] == steps[1]


def test_tokenizing_ahead_gives_the_same_weights(tmp_path, monkeypatch):
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    plain = train(tmp_path / "a", max_steps=3)
    ahead = train(tmp_path / "b", settings={"workers": 1}, max_steps=3)
    assert equal(weights(plain), weights(ahead))


class BadLoss(AsymInfoNCELoss):
    """Turns bad at its fifth call: its value, or only its gradient."""

    only_gradient = False
    calls = 0

    def forward(self, sentence_features, labels):
        loss = super().forward(sentence_features, labels)
        self.calls += 1
        if self.calls < 5:
            return loss
        zero = (loss - loss.detach()).clamp(min=0)
        return loss + zero.sqrt() * 0 if self.only_gradient else loss + torch.log(zero - 1)


class BadGradient(BadLoss):
    only_gradient = True


@pytest.mark.parametrize(("loss", "what"), [(BadLoss, "loss is nan"), (BadGradient, "gradient norm is nan")])
def test_a_bad_step_stops_the_run_and_keeps_its_batch(tmp_path, monkeypatch, loss, what):
    seen = records_of(monkeypatch)
    data = pairs().add_column("label", [[0.0, float("inf") if i == 3 else 1.0] for i in range(32)])
    model = encoder()
    with pytest.raises(NonFiniteError, match=rf"step 5: the {what}.*bad_batch\.json"):
        train(tmp_path, model=model, data={"a": data}, loss=loss, settings={"save_steps": 2}, max_steps=20)
    content = json.loads((tmp_path / "bad_batch.json").read_text(encoding="utf-8"))
    record, _ = seen[-1]
    assert content["step"] == 5
    assert content["texts"] == record.texts
    assert content["sources"] == ["a"] * 8
    expected = [model.preprocess([text])["input_ids"][0].tolist() for text in record.texts["query"]]
    assert content["tokens"]["query"] == expected
    bad = [row for row, text in enumerate(record.texts["query"]) if text == data["query"][3]]
    assert content["rows_with_bad_labels"] == bad
    # The update was not made, and the last good checkpoint is there.
    assert all(torch.isfinite(value).all() for value in weights(model).values())
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["checkpoint-4"]
    train(tmp_path, data={"a": data}, settings={"save_steps": 2}, max_steps=20)
    assert read_metrics(tmp_path / "metrics.jsonl")[-1]["step"] == 20


def test_the_checkpoint_of_another_stage_is_refused(tmp_path):
    train(tmp_path, settings={"save_steps": 2})
    with pytest.raises(MarError, match="holds other parameters"):
        train(tmp_path, loss=lambda model: AsymInfoNCELoss(model, learnable_temperature=True))


def test_stages_in_bf16_follow_each_other_on_one_model(tmp_path):
    seen = []

    class Loss(AsymInfoNCELoss):
        def forward(self, sentence_features, labels):
            seen.append(torch.is_autocast_enabled("cpu"))
            return super().forward(sentence_features, labels)

    model = encoder()
    inside = []
    model[0].register_forward_pre_hook(lambda module, inputs: inside.append(torch.is_autocast_enabled("cpu")))
    for name in "ab":
        train(tmp_path / name, model=model, settings={"precision": "bf16"}, max_steps=1)
    assert inside
    assert all(inside)
    model.encode(["头疼"])
    assert inside[-1] is False
    assert "forward" not in vars(model)


# -- several processes --

SHARED = """
import os, sys, torch
from pathlib import Path
torch.set_num_threads(1)
from safetensors.torch import save_file
from sentence_transformers.base.losses.merged_forward import embed_columns
from mar_st.losses import AsymInfoNCELoss
from tests.mar_st.stages.test_trainer import asymmetric, pairs, train

class Loss(AsymInfoNCELoss):
    # A mean over rows, so that the mean over processes is that over the batch; and a parameter of its own.
    def __init__(self, model):
        super().__init__(model, learnable_temperature=True)
    def forward(self, features, labels):
        features = list(features)
        queries = self.model(features[0])["sentence_embedding"]
        documents = self.model(features[1])["sentence_embedding"]
        distance = (queries - documents).square().sum(dim=1).mean()
        return distance * (1 + self.log_scale ** 2)

folder = Path(sys.argv[1])
model = asymmetric()
made = []
train(folder, model=model, loss=lambda m: made.append(Loss(m)) or made[0], settings={"save_steps": 2},
      data={"a": pairs(40), "b": pairs(24, 5)}, max_steps=4, length_groups=2)
tensors = {**model.state_dict(), "temperature": made[0].log_scale.detach()}
rank = os.environ.get("RANK", 0)
save_file({k: v.contiguous() for k, v in tensors.items()}, folder / f"rank{rank}.safetensors")
"""


@pytest.mark.slow
def test_two_processes_train_like_one(tmp_path):
    from safetensors.torch import load_file

    script = tmp_path / "script.py"
    script.write_text(SHARED)
    root = Path(__file__).parents[3]
    environment = {
        **os.environ,
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(root),
        "HF_HUB_OFFLINE": "1",
    }
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    for folder, command in (("one", [sys.executable]), ("two", launcher)):
        result = subprocess.run(
            [*command, str(script), str(tmp_path / folder)],
            capture_output=True, text=True, check=False, env=environment, cwd=root,
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
    one = load_file(tmp_path / "one" / "rank0.safetensors")
    two = [load_file(tmp_path / "two" / f"rank{rank}.safetensors") for rank in (0, 1)]
    start = {**asymmetric().state_dict(), "temperature": torch.log(torch.tensor(50.0))}
    assert all(torch.equal(two[0][name], two[1][name]) for name in one)
    # Adam turns rounding in small gradients into steps of full size, so the distance is that of all weights.
    apart, moved = (
        torch.cat([(value - other[name]).flatten() for name, value in one.items()]).norm()
        for other in (two[0], start)
    )
    assert apart < 1e-2 * moved
    assert torch.allclose(one["temperature"], two[0]["temperature"], atol=1e-5)
    assert one["temperature"] != start["temperature"]
    rows = [read_metrics(tmp_path / run / "metrics.jsonl") for run in ("one", "two")]
    assert [row["step"] for row in rows[0]] == [row["step"] for row in rows[1]]
    for field in ("loss", "grad_norm", "padding"):
        tolerance = 0.3 if field == "padding" else 1e-3
        assert rows[0][0][field] == pytest.approx(rows[1][0][field], rel=tolerance)
    assert (tmp_path / "two" / "checkpoints" / "checkpoint-4" / "rng_state_1.pth").exists()
