"""Tests of the arguments that a stage gives to sentence-transformers' trainer."""

from __future__ import annotations

import pytest
import torch

from mar_st.planning.launch import LaunchError
from mar_st.recipes.inputs import Evaluation
from mar_st.stages.arguments import training_arguments
from mar_st.stages.reports import OWN_TRACKER
from tests.mar_st.stages.trainer_helpers import make_settings, make_stage


@pytest.fixture
def arguments(tmp_path):
    """Makes arguments: fields of the stage, and `settings` and `options` for the rest."""

    def call(*, settings=None, metric=None, evaluate=True, **fields):
        return training_arguments(
            make_stage(**fields),
            make_settings(tmp_path / "run" / "01-tiny", **(settings or {})),
            torch.device("cpu"),
            evaluate=evaluate,
            metric=metric,
            prompts={"qa": {"query": "检索："}},
            router_mapping={"qa": {"query": "query", "positive": "document"}},
            learning_rate_mapping={r"0\.": 1e-5},
        )

    return call


def test_optimisation_follows_the_stage(arguments, tmp_path):
    made = arguments(batch_size=8, learning_rate=5e-3, weight_decay=0.1, max_grad_norm=2.0, warmup_ratio=0.2)
    assert (made.train_batch_size, made.learning_rate, made.max_steps) == (8, 5e-3, 6)
    assert (made.weight_decay, made.max_grad_norm) == (0.1, 2.0)
    assert made.get_warmup_steps(50) == 10
    assert made.output_dir == str(tmp_path / "run" / "01-tiny" / "checkpoints")
    assert made.prompts == {"qa": {"query": "检索："}}
    assert made.router_mapping["qa"]["positive"] == "document"
    assert made.learning_rate_mapping == {r"0\.": 1e-5}
    epochs = arguments(max_steps=None, epochs=1.5)
    assert (epochs.max_steps, epochs.num_train_epochs) == (-1, 1.5)


@pytest.mark.parametrize(("precision", "bf16"), [("fp32", False), ("bf16", True)])
def test_a_cpu_is_one_device_that_reads_between_the_steps(arguments, precision, bf16):
    made = arguments(settings={"precision": precision, "seed": 5})
    assert (made.device.type, made.n_gpu, made.world_size) == ("cpu", 0, 1)
    assert (made.dataloader_num_workers, made.dataloader_pin_memory) == (0, False)
    assert (made.bf16, made.fp16, made.seed) == (bf16, False, 5)
    assert arguments(settings={"workers": 2}).dataloader_num_workers == 2


@pytest.mark.parametrize(
    ("given", "kept"),
    [((), []), ((OWN_TRACKER,), []), ((OWN_TRACKER, "wandb"), ["wandb"])],
)
def test_the_own_tracker_is_not_one_of_transformers(arguments, given, kept):
    assert arguments(settings={"report_to": given}).report_to == kept


@pytest.mark.parametrize(
    ("fields", "evaluate", "best", "metric"),
    [
        ({}, True, False, None),
        ({"keep": "best"}, True, True, "ndcg"),
        ({"patience": 2}, True, False, "ndcg"),
        ({"keep": "best", "patience": 2}, False, False, None),
    ],
)
def test_the_evaluation_decides_only_if_it_is_asked_to(arguments, fields, evaluate, best, metric):
    evaluation = Evaluation(path="dev", every=7, **fields)
    made = arguments(settings={"evaluation": evaluation}, metric="ndcg", evaluate=evaluate)
    assert made.load_best_model_at_end == best
    assert (made.metric_for_best_model, bool(made.greater_is_better)) == (metric, metric is not None)
    assert made.restore_callback_states_from_checkpoint == (metric is not None)
    assert (made.eval_strategy.value, made.eval_steps) == (("steps", 7) if evaluate else ("no", None))


def test_without_an_evaluation_none_is_run(arguments):
    made = arguments(metric="ndcg")
    assert (made.eval_strategy.value, made.load_best_model_at_end) == ("no", False)
    assert made.metric_for_best_model is None


def test_processes_that_cannot_share_a_batch_are_refused(arguments, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(LaunchError, match=r"3 devices cannot share it evenly\. Choose a multiple of 3"):
        arguments(batch_size=8)
