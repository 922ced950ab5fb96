"""Runs of the trainer: evaluated, killed, resumed, stopped at a bad step, shared by processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from sentence_transformers.base.evaluation import BaseEvaluator

from mar_st.errors import MarError
from mar_st.kernels.cpu_attention import FLOAT32_ATTENTION
from mar_st.losses import AsymInfoNCELoss
from mar_st.recipes.schema import Evaluation
from mar_st.stages import trainer as trainer_module
from mar_st.stages.monitor import MetricsFile, read_metrics
from mar_st.stages.watch import NonFiniteError
from tests.mar_st.stages.trainer_helpers import (
    asymmetric,
    encoder,
    equal,
    pairs,
    records_of,
    train,
    weights,
)

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


@pytest.mark.thorough
def test_evaluates_at_the_start_every_n_steps_and_at_the_end(tmp_path, scores):
    evaluation = Evaluation(path="dev", every=4)
    model = train(tmp_path / "a", model=encoder(0.2), settings={"evaluation": evaluation}, max_steps=10)
    assert scores[0].steps == [0, 4, 8, 10]
    rows = [row for row in read_metrics(tmp_path / "a" / "metrics.jsonl") if "eval_ndcg@10" in row]
    assert [(row["step"], row["eval_ndcg@10"]) for row in rows] == [
        (0, 0.1), (4, 0.2), (8, pytest.approx(0.3)), (10, 0.4)
    ]  # fmt: skip
    # Evaluation does not change training: dropout's random numbers are those of a run without it.
    assert equal(weights(model), weights(train(tmp_path / "b", model=encoder(0.2), max_steps=10)))


class Course(BaseEvaluator):
    """Evaluates with the scores of a given course, by step."""

    def __init__(self, course):
        super().__init__()
        self.primary_metric = "score"
        self.course, self.steps = course, []

    def __call__(self, model, output_path=None, epoch=-1, steps=-1):
        self.steps.append(steps)
        return {"score": self.course[steps]}


#: Best after step 4, then nothing better.
COURSE = {0: 0.9, 2: 0.3, 4: 0.5, 6: 0.4, 8: 0.5, 10: 0.1, 12: 0.2}


@pytest.fixture
def course(monkeypatch):
    made = []

    def evaluator(evaluation):
        made.append(Course(COURSE))
        return made[-1]

    monkeypatch.setattr(trainer_module, "_evaluator", evaluator)
    return made


def judged(folder, save_steps=1000, **fields):
    settings = {"evaluation": Evaluation(path="dev", every=2, **fields), "save_steps": save_steps}
    return train(folder, model=encoder(0.2), settings=settings, max_steps=12)


@pytest.mark.thorough
def test_the_weights_with_the_best_score_are_kept(tmp_path, monkeypatch, course):
    at = {}

    def on_step_end(self, args, state, control, **kwargs):
        at[state.global_step] = weights(kwargs["model"])

    with monkeypatch.context() as patch:
        patch.setattr(MetricsFile, "on_step_end", on_step_end, raising=False)
        best = judged(tmp_path / "best", keep="best")
    assert course[0].steps == [0, 2, 4, 6, 8, 10, 12]
    assert equal(weights(best), at[4])
    assert equal(weights(judged(tmp_path / "last")), at[12])
    assert not equal(at[4], at[12])


@pytest.mark.thorough
def test_a_stage_ends_when_patience_runs_out(tmp_path, course):
    judged(tmp_path / "a", patience=2)
    assert course[0].steps == [0, 2, 4, 6, 8]
    judged(tmp_path / "b", patience=3)
    assert course[1].steps == [0, 2, 4, 6, 8, 10]


def kills():
    """Every setting at every step; by default each of them once."""
    fields = [{"patience": 2}, {"patience": 2, "keep": "best"}, {"keep": "best"}]
    for place, kill in enumerate((3, 5, 7)):
        for number, setting in enumerate(fields):
            marks = () if number == place else pytest.mark.slow
            yield pytest.param(setting, kill, marks=marks, id=f"{'-'.join(setting)}-{kill}")


@pytest.mark.thorough
@pytest.mark.parametrize(("fields", "kill"), list(kills()))
def test_patience_and_the_best_weights_survive_a_kill(tmp_path, monkeypatch, course, fields, kill):
    expected = weights(judged(tmp_path / "whole", save_steps=3, **fields))
    with monkeypatch.context() as patch:
        killed_after(kill, patch)
        with pytest.raises(_Killed):
            judged(tmp_path / "killed", save_steps=3, **fields)
    moved = tmp_path / "moved"  # the paths in a checkpoint are no longer right
    (tmp_path / "killed").rename(moved)
    assert equal(weights(judged(moved, save_steps=3, **fields)), expected)
    assert course[2].steps[-1] == course[0].steps[-1]


@pytest.mark.thorough
def test_a_run_killed_after_its_last_evaluation_ends_at_the_same_step(tmp_path, monkeypatch, course):
    fields = {"patience": 2, "keep": "best", "save_steps": 4}
    expected = weights(judged(tmp_path / "whole", **fields))

    def die(self, args, state, control, **kwargs):
        if state.global_step == 8:
            raise _Killed

    with monkeypatch.context() as patch:
        patch.setattr(MetricsFile, "on_train_end", die, raising=False)
        with pytest.raises(_Killed):
            judged(tmp_path / "killed", **fields)
    assert equal(weights(judged(tmp_path / "killed", **fields)), expected)
    assert course[2].steps[-1] == 8


# -- stopping and resuming --


class _Killed(BaseException):
    pass


def killed_after(step, monkeypatch):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == step:
            raise _Killed

    monkeypatch.setattr(MetricsFile, "on_step_end", on_step_end, raising=False)


@pytest.mark.thorough
@pytest.mark.parametrize("kill", [4, *(pytest.param(step, marks=pytest.mark.slow) for step in (1, 9))])
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


@pytest.mark.thorough
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


@pytest.mark.thorough(but=["BadLoss-loss is nan"])
@pytest.mark.parametrize(("loss", "what"), [(BadLoss, "loss is nan"), (BadGradient, "gradient norm is nan")])
def test_a_bad_step_stops_the_run_and_keeps_its_batch(tmp_path, monkeypatch, loss, what):
    records = records_of(monkeypatch)
    data = pairs().add_column("label", [[0.0, float("inf") if i == 3 else 1.0] for i in range(32)])
    model = encoder()
    with pytest.raises(NonFiniteError, match=rf"step 5: the {what}.*bad_batch\.json"):
        train(tmp_path, model=model, data={"a": data}, loss=loss, settings={"save_steps": 2}, max_steps=20)
    content = json.loads((tmp_path / "bad_batch.json").read_text(encoding="utf-8"))
    record, _ = records[-1]
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


@pytest.mark.thorough
def test_the_checkpoint_of_another_stage_is_refused(tmp_path):
    train(tmp_path, settings={"save_steps": 2})
    with pytest.raises(MarError, match="holds other parameters"):
        train(tmp_path, loss=lambda model: AsymInfoNCELoss(model, learnable_temperature=True))


@pytest.mark.thorough
def test_stages_in_bf16_follow_each_other_on_one_model(tmp_path):
    seen = []

    class Loss(AsymInfoNCELoss):
        def forward(self, sentence_features, labels):
            seen.append(torch.is_autocast_enabled("cpu"))
            return super().forward(sentence_features, labels)

    model = encoder()
    inside = []

    def look(module, inputs):
        inside.append((torch.is_autocast_enabled("cpu"), module.model.config._attn_implementation))

    model[0].register_forward_pre_hook(look)
    for name in "ab":
        train(tmp_path / name, model=model, settings={"precision": "bf16"}, max_steps=1)
    assert set(inside) == {(True, FLOAT32_ATTENTION)}
    model.encode(["头疼"])
    assert inside[-1] == (False, "sdpa")
    train(tmp_path / "fp32", model=model, max_steps=1)
    assert inside[-1] == (False, "sdpa")
    assert "forward" not in vars(model)


# -- several processes --

SHARED = """
import os, sys, torch
from pathlib import Path
torch.set_num_threads(1)
from safetensors.torch import save_file
from sentence_transformers.base.losses.merged_forward import embed_columns
from mar_st.losses import AsymInfoNCELoss
from tests.mar_st.stages.trainer_helpers import asymmetric, pairs, train

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
