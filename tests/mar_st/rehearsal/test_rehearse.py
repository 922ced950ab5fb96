from __future__ import annotations

import os

import pytest
import torch
from safetensors import safe_open
from transformers import trainer
from transformers.utils import logging

import mar_st.rehearsal.rehearse as module
from mar_st.files.locks import alone
from mar_st.recipes.load import load_recipe, recipe_names
from mar_st.recipes.schema import Recipe
from mar_st.rehearsal.rehearse import (
    REHEARSAL_LIMITS,
    SAVE_STEPS,
    STEPS,
    RehearsalError,
    rehearse,
    start_folder,
)
from mar_st.rehearsal.shorten import shorten
from mar_st.rehearsal.tiny import shrink, write_evaluation

#: Contrastive training, in a few seconds; all others are slow.
QUICK = {"mini-symmetric-query"}


def _tiny(name, tmp_path, dtype=None):
    recipe = shrink(load_recipe(name), dtype)
    if recipe.evaluation is None:
        return recipe
    path = str(write_evaluation(tmp_path / "dev"))
    return recipe.model_copy(update={"evaluation": recipe.evaluation.model_copy(update={"path": path})})


def _one_stage(dtype=None):
    recipe = shrink(load_recipe("mini-symmetric-query"), dtype)
    return recipe.model_copy(update={"data": recipe.data[1:]})


@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in recipe_names()],
)
def test_shipped_recipes_pass_a_tiny_rehearsal(name, tmp_path):
    recipe = _tiny(name, tmp_path)
    lines = []
    reports = rehearse(recipe, tmp_path / "run", say=lines.append)
    assert [report.name for report in reports] == [stage.name for stage in recipe.stages]
    assert len(lines) == len(reports)
    for report in reports:
        assert (report.steps, report.resumed_from) == (STEPS, SAVE_STEPS)
        assert list(report.losses) == list(range(1, STEPS + 1))
        # Steps 11 and 12 were done twice.
        assert len(report.seconds) == STEPS + 2
        if recipe.evaluation is not None:
            assert report.evaluations[-1] == STEPS
    assert (tmp_path / "run" / "model").is_dir()


def _stored(folder):
    """Dtypes of the weights in a folder."""
    dtypes = set()
    for file in folder.rglob("*.safetensors"):
        with safe_open(file, framework="pt") as tensors:
            dtypes |= {tensors.get_slice(name).get_dtype() for name in tensors.keys()}  # noqa: SIM118
    return dtypes


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", recipe_names())
def test_shipped_recipes_pass_a_tiny_rehearsal_in_bfloat16(name, tmp_path):
    recipe = _tiny(name, tmp_path, "bfloat16")
    reports = rehearse(recipe, tmp_path / "run", say=lambda _: None)
    assert [report.name for report in reports] == [stage.name for stage in recipe.stages]
    assert {backbone.dtype for backbone in (recipe.query, recipe.document) if backbone} == {"bfloat16"}


#: A query encoder and a document encoder of each family that recipes name, together once.
FAMILIES = [
    ("gte", "qwen3"),
    ("bert", "qwen2"),
    ("xlm-roberta", "llama"),
    ("modernbert", "mistral"),
    ("gte", "gemma"),
    ("bert", "gpt_neox"),
]


def _family(model_type, width, layers):
    config = {
        "model_type": model_type,
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "intermediate_size": 2 * width,
        "max_position_embeddings": 128,
        "initializer_range": round(width**-0.5, 3),
    }
    if model_type in ("qwen3", "qwen2", "llama", "mistral", "gemma"):
        config["num_key_value_heads"] = 2
    if model_type in ("qwen3", "gemma"):
        config["head_dim"] = width // 4
    return config


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("query", "document"), FAMILIES)
def test_every_family_passes_a_tiny_rehearsal_in_bfloat16(query, document, tmp_path):
    content = _tiny("mar-0.3b-4b", tmp_path, "bfloat16").model_dump()
    content["query"]["config"] = _family(query, 32, 2)
    content["document"]["config"] = _family(document, 64, 2)
    names = ("retromae", "query-init", "document-init", "align", "joint")
    content["stages"] = [stage for stage in content["stages"] if stage["name"] in names]
    content["evaluation"] = None
    reports = rehearse(Recipe.model_validate(content), tmp_path / "run", say=lambda _: None)
    assert [report.name for report in reports] == list(names)
    stored = {report.name: _stored(report.folder / "model") for report in reports}
    assert stored["query-init"] == {"F32"}
    assert stored["document-init"] == {"BF16"}
    assert stored["joint"] == {"F32", "BF16"}


@pytest.mark.thorough
def test_a_rehearsal_in_bfloat16_computes_in_it(tmp_path):
    recipe = _one_stage("bfloat16")
    assert (recipe.precision, recipe.query.dtype) == ("bf16", "bfloat16")
    lora = recipe.stages[0].model_copy(update={"lora_r": 2})
    rehearse(recipe.model_copy(update={"stages": (lora,)}), tmp_path / "run", say=lambda _: None)
    assert _stored(tmp_path / "run" / "model") == {"BF16"}


@pytest.mark.thorough
def test_a_rehearsal_changes_only_its_folder_and_no_global_state(tmp_path, monkeypatch):
    monkeypatch.setenv("MAR_STAGES", str(tmp_path / "stages"))
    monkeypatch.setenv("MAR_STORE", str(tmp_path / "vectors"))

    def world():
        return list(trainer.DEFAULT_CALLBACKS), dict(os.environ), logging.is_progress_bar_enabled()

    before, during = world(), []
    rehearse(_one_stage(), tmp_path / "run", say=lambda _: during.append(world()))
    assert [seen[:2] for seen in during] == [before[:2]]
    assert world() == before
    assert {path.name for path in tmp_path.iterdir()} == {"run"}
    # A second rehearsal starts from nothing.
    (report,) = rehearse(_one_stage(), tmp_path / "run", say=lambda _: None)
    assert report.resumed_from == SAVE_STEPS


@pytest.mark.cpu
def test_a_failing_stage_is_named(tmp_path, monkeypatch):
    import mar_st.stages.contrastive as contrastive

    class Broken(torch.nn.Module):
        def __init__(self, model, *args, **kwargs):
            super().__init__()
            self.model = model

        def forward(self, features, labels):
            raise RuntimeError("no such kernel")

    monkeypatch.setattr(contrastive, "AsymInfoNCELoss", Broken)
    with pytest.raises(RehearsalError, match="stage symmetric: RuntimeError: no such kernel"):
        rehearse(_one_stage(), tmp_path / "run")


def test_a_loss_that_is_not_finite_is_reported(tmp_path):
    stage = _one_stage().stages[0].model_copy(update={"learning_rate": 1e30, "max_grad_norm": 1e30})
    recipe = _one_stage().model_copy(update={"stages": (stage,), "precision": "fp32"})
    with pytest.raises(RehearsalError, match=r"stage symmetric: .*(nan|inf|NaN|finite)"):
        rehearse(recipe, tmp_path / "run")


@pytest.mark.thorough
def test_a_stage_that_does_not_resume_is_reported(tmp_path, monkeypatch):
    import mar_st.stages.trainer as stages

    monkeypatch.setattr(stages, "last_checkpoint", lambda *args, **kwargs: None)
    with pytest.raises(RehearsalError, match="stage symmetric: resumed from step 0, not from its checkpoint"):
        rehearse(_one_stage(), tmp_path / "run")


@pytest.mark.thorough
def test_a_model_that_does_not_load_is_reported(tmp_path, monkeypatch):
    def broken(path, **options):
        raise OSError("no weights")

    monkeypatch.setattr("mar_st.rehearsal.rehearse.SentenceTransformer", broken)
    with pytest.raises(RehearsalError, match="its model does not load and encode: OSError: no weights"):
        rehearse(_one_stage(), tmp_path / "run")


def test_unreadable_data_are_reported_before_the_first_stage(tmp_path):
    recipe = _one_stage()
    missing = recipe.data[0].model_copy(update={"path": str(tmp_path / "none.jsonl")})
    with pytest.raises(RehearsalError, match=r"before the first stage: MarError: .*none\.jsonl"):
        rehearse(recipe.model_copy(update={"data": (missing,)}), tmp_path / "run")


@pytest.mark.parametrize("name", ["thesis.txt", "recipe.json"])
def test_folders_other_than_rehearsals_are_not_touched(tmp_path, name):
    (tmp_path / name).write_text("{}")
    with pytest.raises(RehearsalError, match="something else than a rehearsal"):
        rehearse(_one_stage(), tmp_path)
    assert (tmp_path / name).exists()


def test_only_a_rehearsal_is_replaced_by_the_next_one(tmp_path):
    folder = tmp_path / "run"
    start_folder(folder, "first")
    (folder / "left.txt").write_text("of the first")
    start_folder(folder, "second")
    assert not (folder / "left.txt").exists()
    assert (folder / "rehearsal.json").is_file()
    with alone(folder, RehearsalError), pytest.raises(RehearsalError, match="Another process is writing"):
        start_folder(folder, "at the same time")
    assert (folder / "rehearsal.json").is_file()
    real = load_recipe("mini-symmetric-query")
    (folder / "recipe.json").write_text(shorten(real, REHEARSAL_LIMITS).model_dump_json())
    start_folder(folder, "third")
    (folder / "recipe.json").write_text(real.model_dump_json())  # a real run in the folder of a rehearsal
    with pytest.raises(RehearsalError, match="something else than a rehearsal"):
        start_folder(folder, "fourth")
    assert (folder / "recipe.json").is_file()


def test_steps_after_the_checkpoint_are_lost_and_done_again():
    assert SAVE_STEPS < module.STOP_STEP < STEPS
