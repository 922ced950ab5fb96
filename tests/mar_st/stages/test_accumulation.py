"""Several passes of a step give the gradients of one."""

from __future__ import annotations

import json

import pytest
import torch

from mar_st.data import Source
from mar_st.recipes.rules import HEAD_FILE
from mar_st.recipes.schema import AlignStage, Data, RetroMAEStage
from mar_st.stages.align import train_align
from mar_st.stages.contrastive import train_contrastive
from mar_st.stages.retromae import train_retromae
from mar_st.stages.trainer import StageTrainer
from tests.mar_st.stages.helpers import FAST, encoder, mar, settings, source, stage, weights

#: Texts of very different lengths, so that passes have different numbers of targets.
TEXTS = [("头疼发热咳嗽感冒" * 5)[: 3 + 5 * (i % 7)] + f"{i}" for i in range(24)]


def retromae(folder, model=None, texts=TEXTS, save_steps=1000, **fields):
    content = {**FAST, "max_steps": 1, "name": "pre", **fields}
    content.pop("temperature")
    retromae_stage = RetroMAEStage.model_validate({"stage": "retromae", **content})
    data = Source(Data(name="texts", path="-", form="texts", role="document"), texts=texts)
    torch.manual_seed(3)
    train_retromae(model or encoder(), [data], retromae_stage, settings(folder, save_steps=save_steps), {})


def align(folder, **fields):
    own = {"max_steps": 1, "contrastive_weight": 0.0, "cosine_weight": 0.5, **fields}
    align_stage = AlignStage.model_validate({"stage": "align", "name": "align", **FAST, **own})
    train_align(mar(), [source()], align_stage, settings(folder), {})


def contrastive(folder, sources=None, **fields):
    contrastive_stage = stage("contrastive", **{"max_steps": 1, "dims": [16, 4], **fields})
    train_contrastive(encoder(), sources or [source()], contrastive_stage, settings(folder), {})


@pytest.fixture
def taken(monkeypatch):
    """Gradients that the optimiser sees in the last step, and how many rows each pass had."""
    seen, average, loss = {}, StageTrainer._average_gradients, StageTrainer.compute_loss
    seen["rows"] = []

    def keep(trainer):
        average(trainer)
        seen["gradients"] = {
            name: p.grad.clone() for name, p in trainer.trained_parameters().items() if p.grad is not None
        }

    def count(trainer, model, inputs, *args, **kwargs):
        features, _ = trainer.collect_features(inputs)
        seen["rows"].append(len(features[0]["input_ids"]))
        return loss(trainer, model, inputs, *args, **kwargs)

    monkeypatch.setattr(StageTrainer, "_average_gradients", keep)
    monkeypatch.setattr(StageTrainer, "compute_loss", count)

    def call(train, *args, **kwargs):
        seen["rows"].clear()
        train(*args, **kwargs)
        return seen["gradients"], list(seen["rows"])

    return call


def _distance(gradients, wanted):
    assert gradients.keys() == wanted.keys()
    assert max(float(gradient.abs().max()) for gradient in wanted.values()) > 1e-3
    # A key's bias has a gradient of zero, to rounding: it counts against the longest.
    least = 1e-4 * max(float(value.norm()) for value in wanted.values())
    return max(
        float((gradients[name] - value).norm() / (value.norm() + least)) for name, value in wanted.items()
    )


def _records(folder):
    (file,) = folder.rglob("metrics.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.thorough(but=["align-fields4-rows4"])
@pytest.mark.parametrize(
    ("train", "fields", "rows"),
    [
        (retromae, {"mini_batch_size": 3}, [3, 3, 2]),
        (retromae, {"gradient_accumulation": 4}, [2, 2, 2, 2]),
        (retromae, {"mini_batch_size": 3, "gradient_checkpointing": True}, [3, 3, 2]),
        (align, {"gradient_accumulation": 3}, [3, 3, 2]),
        (align, {"gradient_accumulation": 2, "mini_batch_size": 3}, [4, 4]),
    ],
)
def test_gradients_of_the_passes_add_up_to_those_of_one(tmp_path, taken, train, fields, rows):
    whole, one = taken(train, tmp_path / "whole")
    parts, several = taken(train, tmp_path / "parts", **fields)
    assert (one, several) == ([8], rows)
    assert _distance(parts, whole) < 1e-5
    first, second = _records(tmp_path / "whole")[0], _records(tmp_path / "parts")[0]
    for name in [name for name in first if name.startswith("loss")]:
        assert second[name] == pytest.approx(first[name], rel=1e-3)


@pytest.mark.thorough
def test_passes_of_retromae_are_weighted_by_their_targets(tmp_path, taken):
    """The check above is not vacuous: the mean over passes has other gradients."""
    whole, _ = taken(retromae, tmp_path / "whole")
    from mar_st.losses.retromae import RetroMAELoss

    plain = RetroMAELoss.prepare

    def uneven(loss, features):
        (column,) = plain(loss, features)
        return [{**column, "targets": tuple(value * 0 + 1 for value in column["targets"])}]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RetroMAELoss, "prepare", uneven)
        parts, _ = taken(retromae, tmp_path / "parts", mini_batch_size=3)
    assert _distance(parts, whole) > 0.1


@pytest.mark.thorough
def test_rows_are_compared_within_a_pass(tmp_path, taken):
    """InfoNCE of two passes is the mean of that of two batches; GradCache within a pass changes nothing."""
    rows = source().triples[:8]
    halves, sizes = taken(contrastive, tmp_path / "halves", [source(triples=rows)], gradient_accumulation=2)
    assert sizes == [4, 4]
    cached, _ = taken(
        contrastive, tmp_path / "cached", [source(triples=rows)], gradient_accumulation=2, mini_batch_size=3
    )
    assert _distance(cached, halves) < 1e-5
    whole, _ = taken(contrastive, tmp_path / "whole", [source(triples=rows)])
    assert _distance(halves, whole) > 1e-2


@pytest.mark.thorough
@pytest.mark.parametrize("fields", [{"mini_batch_size": 3}, {"gradient_accumulation": 2}])
def test_a_resumed_run_of_several_passes_gives_the_same_weights(tmp_path, monkeypatch, fields):
    fields = {"max_steps": 6, "save_steps": 2, **fields}
    whole, part = encoder(dropout=0.1), encoder(dropout=0.1)
    retromae(tmp_path / "whole", whole, **fields)
    step = StageTrainer.training_step

    def killed(self, *args, **kwargs):
        if self.state.global_step == 5:
            raise KeyboardInterrupt
        return step(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(StageTrainer, "training_step", killed)
        with pytest.raises(KeyboardInterrupt):
            retromae(tmp_path / "part", part, **fields)
    part = encoder(dropout=0.1)
    retromae(tmp_path / "part", part, **fields)
    wanted = weights(whole)
    assert all(torch.equal(value, wanted[name]) for name, value in weights(part).items())
    heads = [next((tmp_path / name).rglob(HEAD_FILE)).read_bytes() for name in ("whole", "part")]
    assert heads[0] == heads[1]
