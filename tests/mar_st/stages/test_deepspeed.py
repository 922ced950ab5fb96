from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import pytest
import torch

from mar_st.losses.retromae import RetroMAELoss
from mar_st.planning.launch import Launch, LaunchError, check_stage
from mar_st.recipes.schema import AlignStage, RetroMAEStage
from mar_st.stages.align import train_align
from mar_st.stages.contrastive import train_contrastive
from mar_st.stages.deepspeed import LENT_PREFIX, lend, take_back
from mar_st.stages.joint import train_joint
from mar_st.stages.trainer import StageTrainer
from tests.mar_st.stages.helpers import FAST, encoder, mar, settings, source, stage

CONFIGS = Path(str(files("mar_st") / "configs"))


@pytest.mark.parametrize("zero", [0, 1, 2])
def test_shipped_configurations_leave_sizes_to_the_trainer(zero):
    content = json.loads((CONFIGS / f"zero{zero}.json").read_text(encoding="utf-8"))
    assert content["zero_optimization"]["stage"] == zero
    sizes = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    assert {content[name] for name in (*sizes, "gradient_clipping")} == {"auto"}


def test_configurations_of_zero_0_to_2_are_shipped():
    assert {path.name for path in CONFIGS.iterdir()} == {"zero0.json", "zero1.json", "zero2.json"}


@pytest.fixture
def engine(monkeypatch):
    """A trainer that takes DeepSpeed to be on; it notes what the model tells an engine of, then stops it."""
    noted = {}

    def prepared(trainer):
        noted.update(trainer.model.named_parameters())
        noted["names"] = list(trainer.trained_parameters())
        trainer.is_deepspeed_enabled = False  # training itself continues without it

    create = StageTrainer.create_optimizer

    def creating(trainer, model=None):
        trainer.is_deepspeed_enabled = True
        optimizer = create(trainer, model)
        prepared(trainer)
        noted["optimised"] = {id(p) for group in optimizer.param_groups for p in group["params"]}
        return optimizer

    monkeypatch.setattr(StageTrainer, "create_optimizer", creating)
    return noted


@pytest.mark.thorough
def test_the_engine_knows_the_parameters_of_the_loss(tmp_path, engine):
    """The engine requires that all optimised parameters are parameters of the wrapped model."""
    model = encoder()
    keys = list(model.state_dict())
    train_contrastive(
        model, [source()], stage("contrastive", learnable_temperature=True), settings(tmp_path), {}
    )
    names, optimised = engine.pop("names"), engine.pop("optimised")
    assert optimised == {id(parameter) for parameter in engine.values()}
    assert engine[f"{LENT_PREFIX}loss____log_scale"].shape == ()  # as it was, now that training is over
    # Checkpoints name it as they do without DeepSpeed, and the model is left without it.
    assert "loss..log_scale" in names
    assert not any(LENT_PREFIX in name for name in names)
    assert list(model.state_dict()) == keys


def test_lent_parameters_have_a_dimension(tmp_path):
    model, scale = torch.nn.Sequential(torch.nn.Linear(2, 2)), torch.nn.Parameter(torch.tensor(3.0))
    lend(model, {"loss..log_scale": scale, "loss..head.bias": torch.nn.Parameter(torch.zeros(4))})
    assert {name: tuple(p.shape) for name, p in model._parameters.items()} == {
        f"{LENT_PREFIX}loss____log_scale": (1,), f"{LENT_PREFIX}loss____head__bias": (4,)
    }  # fmt: skip
    assert model(torch.zeros(1, 2)).shape == (1, 2)
    take_back(model)
    assert (scale.shape, scale.item(), len(list(model.parameters()))) == ((), 3.0, 2)


def test_retromae_runs_behind_a_wrapper():
    """DeepSpeed's engine gives no modules by position."""
    model = encoder()
    loss = RetroMAELoss(model)
    batch = model.preprocess(["头疼发热怎么办"])
    torch.manual_seed(0)
    plain = loss([dict(batch)])
    loss.model = Wrapper(model)
    torch.manual_seed(0)
    assert torch.equal(loss([dict(batch)]), plain)


class Wrapper(torch.nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module


def test_gradcache_is_refused_with_zero_2_alone(tmp_path, monkeypatch):
    """In every kind of stage: each builds its own trainer."""
    monkeypatch.setattr("mar_st.planning.launch.find_spec", lambda name: object())
    with pytest.raises(LaunchError, match=r"ZeRO 2 .* cannot be combined with mini_batch_size"):
        train_joint(
            mar(), [source()], stage("joint", mini_batch_size=4),
            settings(tmp_path, deepspeed=CONFIGS / "zero2.json"), {},
        )  # fmt: skip
    made = AlignStage.model_validate({"stage": "align", "name": "align", **FAST, "mini_batch_size": 4})
    with pytest.raises(LaunchError, match=r"ZeRO 2 .* cannot be combined with mini_batch_size"):
        train_align(mar(), [source()], made, settings(tmp_path, deepspeed=CONFIGS / "zero2.json"), {})
    cached = stage("joint", mini_batch_size=4)
    for zero, allowed in ((0, cached), (1, cached), (2, stage("joint"))):
        check_stage(allowed, Launch(1, CONFIGS / f"zero{zero}.json"))
    passes = {"stage": "retromae", "name": "pre", "batch_size": 8, "learning_rate": 1e-3}
    check_stage(RetroMAEStage(**passes, mini_batch_size=2), Launch(1, CONFIGS / "zero1.json"))
    check_stage(cached, Launch(1))
