"""Memory that a plan expects, against that of training."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from pydantic import TypeAdapter

from mar_st.losses import AlignmentLoss, AsymInfoNCELoss, ScoreDistillLoss, in_batch
from mar_st.planning import footprint
from mar_st.planning.costs import LiveBytes
from mar_st.planning.plan import plan
from mar_st.planning.workload import Column
from mar_st.recipes.schema import Recipe, Stage
from mar_st.runs.train import train

STAGES = {
    "full": {"stage": "contrastive", "side": "document", "temperature": 0.1, "dims": [16, 128]},
    "gradcache": {"stage": "contrastive", "side": "document", "temperature": 0.1, "mini_batch_size": 8},
    "lora": {
        "stage": "contrastive", "side": "document", "temperature": 0.1, "lora_r": 4,
        "gradient_checkpointing": True,
    },
    "retromae": {"stage": "retromae"},
    "retromae in passes": {"stage": "retromae", "mini_batch_size": 8},
    "accumulation": {"stage": "contrastive", "side": "query", "temperature": 0.1, "gradient_accumulation": 4},
    "distill": {"stage": "distill", "temperature": 0.1},
    "align": {"stage": "align"},
    "joint": {"stage": "joint", "temperature": 0.1},
    "frozen": {"stage": "joint", "temperature": 0.1, "freeze": "document"},
}  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[pytest.mark.slow] * (kind in ("gradcache", "lora"))) for kind in STAGES],
)
def test_memory_of_a_stage_is_what_training_it_takes(recipe, tmp_path, kind):
    """Weights, gradients, AdamW moments and activations, by an account of all tensors of a run."""
    stage = {"name": "one", "max_steps": 3, "batch_size": 32, "learning_rate": 1e-3, **STAGES[kind]}
    content = recipe.model_dump()
    content["stages"] = [stage]
    content["document"]["config"] |= {"hidden_size": 128, "intermediate_size": 512}
    content["query"]["config"] |= {"intermediate_size": 256}
    alone = Recipe.model_validate(content)
    planned = plan(alone).stages[0].memory
    with LiveBytes() as live:
        train(alone, tmp_path / "run")
    assert planned["peak"] == pytest.approx(live.peak, rel=0.25)
    assert planned["activations"] > planned["weights"] / 5  # all parts matter here


@pytest.mark.thorough
def test_more_devices_need_less_memory_each(recipe):
    alone = recipe.model_copy(update={"stages": recipe.stages[:1]})
    assert plan(alone, world=4).memory < plan(alone).memory


#: Losses of stages, by their settings.
LOSSES = {
    "infonce": ("contrastive", {}),
    "every option": (
        "contrastive", {"learnable_temperature": True, "both_directions": True, "false_negative_margin": 0.1},
    ),
    "dims": ("contrastive", {"dims": [256, 64, 16]}),
    "distill": ("distill", {}),
    "align": ("align", {}),
    "align without scores": ("align", {"contrastive_weight": 0.0}),
}  # fmt: skip


@pytest.mark.thorough(but=["3000-16-infonce", "1000-256-dims", "1000-256-distill"])
@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize(("rows", "dim"), [(3000, 16), (1000, 256)])
def test_memory_of_a_loss_is_what_it_allocates(kind, rows, dim, monkeypatch):
    """Scores a few rows at a time, and the vectors; not the square of the batch."""
    for module in (in_batch, footprint):
        monkeypatch.setattr(module, "MAX_SCORES", 2**20)
    name, fields = LOSSES[kind]
    fields = dict(fields)
    if "dims" in fields:
        fields["dims"] = [value for value in fields["dims"] if value <= dim]
    shared = {"name": "one", "batch_size": rows, "learning_rate": 1e-3, "temperature": 0.1}
    sides = {} if name == "align" else {"side": "query"}
    made = TypeAdapter(Stage).validate_python({"stage": name, **sides, **shared, **fields})
    vectors = [torch.randn(rows, dim) for _ in range(2)]
    with LiveBytes() as live:
        before = live.restart()
        columns = [vector.clone().requires_grad_() for vector in vectors]
        _loss_of(made, dim)(columns).backward()
        peak = live.peak - before
    columns = [Column("query", rows, 8, 8) for _ in range(1 if name == "align" else 2)]
    planned = footprint._loss(made, columns, 1, dim)
    assert planned == pytest.approx(peak, rel=0.3)
    if name != "align":
        assert planned < 4 * rows * rows * 3 or rows * rows < 2**20  # less than three whole matrices


def _loss_of(stage, dim):
    """The loss of a stage, as a function of the vectors of its two columns."""
    model = SimpleNamespace(similarity_fn_name="cosine", device=torch.device("cpu"))
    if stage.stage == "align":
        weights = {"contrastive_weight": stage.contrastive_weight, "mse_weight": stage.mse_weight}
        aligned = AlignmentLoss(model, **weights)
        return lambda columns: aligned.compute_loss(columns[0], columns[1].detach())
    names = ("learnable_temperature", "dims", "both_directions", "false_negative_margin")
    options = {name: getattr(stage, name) for name in names if hasattr(stage, name)}
    if stage.stage == "contrastive":
        loss = AsymInfoNCELoss(model, temperature=0.1, **options)
        return lambda columns: loss.compute_loss_from_embeddings(columns, None)
    distill = ScoreDistillLoss(model, temperature=0.1, kl_scope="batch")
    labels = torch.randn(stage.batch_size, 2, dim)
    return lambda columns: distill.compute_loss_from_embeddings(columns, labels)
