"""Every stage on a GPU, from encoders stored in bf16."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

pytest.importorskip("datasets", reason="training needs datasets")
pytest.importorskip("pydantic", reason="recipes need pydantic")
pytest.importorskip("filelock", reason="training needs filelock")

from sentence_transformers import SentenceTransformer

from mar_st.recipes.schema import Recipe
from mar_st.runs.train import train
from mar_st.stages.compiling import has_compiler
from mar_st.stages.monitor import MetricsFile, read_metrics
from tests.mar_st.gpu_helpers import WIDTHS, recipe_content, texts

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).parents[3]
FAST = {"batch_size": 8, "learning_rate": 3e-3, "max_steps": 16, "epochs": 20, "warmup_ratio": 0.0}
WARM = {**FAST, "temperature": 0.1}
LORA = {"lora_r": 4, "lora_alpha": 16, "lora_dropout": 0.0, "gradient_checkpointing": True}
STAGES = {
    "retromae": {"stage": "retromae", **FAST},
    "query": {"stage": "contrastive", "side": "query", **WARM, "learnable_temperature": True},
    "query-checkpointing": {"stage": "contrastive", "side": "query", **WARM, "gradient_checkpointing": True},
    "document": {"stage": "contrastive", "side": "document", **WARM, "dims": [16, 32, 64]},
    "document-lora": {
        "stage": "contrastive", "side": "document", **WARM, "dims": [16, 32, 64], "mini_batch_size": 4, **LORA
    },
    "align": {"stage": "align", **WARM, "contrastive_weight": 1.0, "mse_weight": 1.0},
    "align-parts": {"stage": "align", **WARM, "mini_batch_size": 4},
    "joint": {"stage": "joint", **WARM},
    "joint-lora": {"stage": "joint", **WARM, "mini_batch_size": 4, **LORA},
    "distill": {"stage": "distill", "side": "query", "teacher": "document", **WARM},
}  # fmt: skip


def silent(line):
    del line


def recipe_of(folder, name, **fields):
    """A recipe of one stage."""
    changes = fields.pop("stage", {})
    if "lora_r" in STAGES[name]:
        pytest.importorskip("peft", reason="LoRA needs peft")
    stages = [{"name": name, **STAGES[name], **changes}]
    return Recipe.model_validate(recipe_content(folder, stages, **fields))


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_learns_in_bf16(gpu, tmp_path, monkeypatch, name):
    devices = set()

    def on_step_end(self, args, state, control, **kwargs):
        devices.update(parameter.device.type for parameter in kwargs["model"].parameters())

    def on_init_end(self, args, state, control, **kwargs):
        args.logging_steps = 4

    monkeypatch.setattr(MetricsFile, "on_step_end", on_step_end, raising=False)
    monkeypatch.setattr(MetricsFile, "on_init_end", on_init_end, raising=False)
    out = train(recipe_of(tmp_path, name), tmp_path / "run", until=name, save_steps=1000, say=silent)
    assert devices == {gpu.type}
    records = [r for r in read_metrics(tmp_path / "run" / f"01-{name}" / "metrics.jsonl") if "loss" in r]
    assert [record["step"] for record in records] == [4, 8, 12, 16]
    assert all(math.isfinite(record["loss"]) for record in records)
    assert records[-1]["loss"] < records[0]["loss"]
    assert all(record["peak_memory_gb"] > 0 for record in records)
    model = SentenceTransformer(str(out), device=str(gpu))
    width = model.encode_query(texts()[:2]).shape[1]
    assert width in WIDTHS.values()


def weights(folder):
    by_name = {}
    for path in sorted(folder.rglob("*.safetensors")):
        tensors = load_file(path).items()
        by_name |= {f"{path.parent.name}/{name}": tensor.float() for name, tensor in tensors}
    assert by_name
    return by_name


def apart(first, second, start):
    """Distance of two trained models, relative to the way that training went."""
    assert first.keys() == second.keys() == start.keys()
    way = torch.cat([(first[name] - start[name]).flatten() for name in start]).norm()
    assert way > 0
    return float(torch.cat([(first[name] - second[name]).flatten() for name in start]).norm() / way)


def test_compiled_training_is_plain_training_to_rounding(gpu, tmp_path):
    name = "query"
    if not has_compiler(on_cpu=gpu.type == "cpu"):
        pytest.skip("no C or C++ compiler")
    few = {"max_steps": 4}
    trained = {}
    for kind, fields in {
        "start": {"stage": {**few, "learning_rate": 1e-12}},
        "plain": {"stage": few},
        "compiled": {"stage": few, "compile": True},
    }.items():
        recipe = recipe_of(tmp_path / kind, name, precision="fp32", **fields)
        trained[kind] = weights(train(recipe, tmp_path / kind / "run", until=name, say=silent))
    assert apart(trained["plain"], trained["compiled"], trained["start"]) < 2e-2


class KilledError(BaseException):
    """Stands for the end of the process: nothing in a training loop may catch it."""


def test_a_killed_run_resumes_to_the_weights_of_an_uninterrupted_one(gpu, tmp_path, monkeypatch):
    recipe = recipe_of(tmp_path, "joint-lora", stage={"max_steps": 8, "lora_dropout": 0.1})

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 6:
            raise KilledError

    # Sums without a fixed order would make two runs differ.
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        train(recipe, tmp_path / "whole", save_steps=4, say=silent)
        with monkeypatch.context() as patch:
            patch.setattr(MetricsFile, "on_step_end", on_step_end, raising=False)
            with pytest.raises(KilledError):
                train(recipe, tmp_path / "killed", save_steps=4, say=silent)
        checkpoints = tmp_path / "killed" / "01-joint-lora" / "checkpoints"
        assert [path.name for path in checkpoints.iterdir()] == ["checkpoint-4"]
        train(recipe, tmp_path / "killed", save_steps=4, say=silent)
    finally:
        torch.use_deterministic_algorithms(False)
    whole, resumed = (weights(tmp_path / name / "model") for name in ("whole", "killed"))
    if gpu.type == "cpu":
        assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    else:
        start = {name: torch.zeros_like(tensor) for name, tensor in whole.items()}
        assert apart(whole, resumed, start) < 1e-5


#: Runs a recipe: its file, the run folder.
SCRIPT = """
import json, sys
from mar_st.recipes.schema import Recipe
from mar_st.runs.train import train

if __name__ == "__main__":
    recipe, out = sys.argv[1:]
    train(Recipe.model_validate(json.load(open(recipe))), out)
"""


def test_two_processes_train_as_one(gpu, tmp_path):
    if gpu.type == "cuda" and torch.cuda.device_count() < 2:
        pytest.skip("needs two CUDA devices")
    script, recipe = tmp_path / "script.py", tmp_path / "recipe.json"
    script.write_text(SCRIPT, encoding="utf-8")
    start = recipe_of(tmp_path, "joint", precision="fp32", stage={"max_steps": 1, "learning_rate": 1e-12})
    stage = start.stages[0].model_copy(update={"max_steps": 4, "learning_rate": 3e-3})
    few = start.model_copy(update={"stages": (stage,)})
    recipe.write_text(few.model_dump_json(), encoding="utf-8")
    train(start, tmp_path / "start", say=silent)
    train(few, tmp_path / "one", say=silent)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAR_")}
    environment |= {"OMP_NUM_THREADS": "1"} | ({"CUDA_VISIBLE_DEVICES": ""} if gpu.type == "cpu" else {})
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    process = subprocess.run(
        [*command, str(script), str(recipe), str(tmp_path / "two")],
        env=environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr[-4000:]
    first, one, two = (weights(tmp_path / name / "model") for name in ("start", "one", "two"))
    assert apart(one, two, first) < 1e-2
