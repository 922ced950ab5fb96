"""One small run of all stages that several test files look at, and what they need besides."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import torch
import yaml

from tests.conftest import write_jsonl
from tests.once import once

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from mar_st.recipes.schema import Recipe

SYMPTOMS = ["头疼", "发热", "咳嗽", "胸闷", "腹泻", "失眠", "乏力", "皮疹"]
QUESTIONS = {
    "吃什么药": "用药建议：{}患者可以在医生指导下服用药物。",
    "挂什么科": "就诊科室：{}应当先到门诊挂号。",
    "是什么原因": "病因说明：引起{}的原因有多种。",
    "怎么预防": "预防方法：避免{}需要注意作息。",
    "要做什么检查": "检查项目：{}一般先做血常规。",
}
STAGES = ["01-query-init", "02-document-init", "03-align", "04-joint"]
LORA = ["stages.joint.lora_r=4", "stages.joint.lora_alpha=16", "stages.joint.learning_rate=0.02"]


@pytest.fixture(scope="module")
def one_thread():
    """Matrices of this size only lose by threads that wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def train_in_two_processes(recipe: Recipe, file: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """Run `mar train` under torchrun with two processes; the recipe is written to a file for it."""
    file.write_text(yaml.safe_dump(recipe.model_dump(mode="json"), allow_unicode=True), encoding="utf-8")
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--standalone"]
    command = [*launch, "-m", "mar_st.cli", "train", str(file), "--out", str(out)]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    process = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert process.returncode == 0, process.stderr
    return process


def silent(line: str) -> None:
    del line


def weights(folder: Path) -> dict[str, bytes]:
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*.safetensors")}
    assert files
    return files


@pytest.fixture(scope="session")
def recipe_file(tmp_path_factory):
    """A recipe of four short stages on 40 triples; with dropout, whose stream resuming must restore."""
    return once(tmp_path_factory, "recipe", _write_recipe) / "tiny.yaml"


def triples() -> list[dict[str, Any]]:
    """40 questions with their answers, and answers to other questions."""
    rows = []
    for symptom in SYMPTOMS:
        for ending, answer in QUESTIONS.items():
            others = [text.format(symptom) for text in QUESTIONS.values() if text != answer]
            row = {"query": symptom + ending, "positive": answer.format(symptom)}
            rows.append({**row, "negatives": others})
    return rows


def _write_recipe(folder: Path) -> None:
    write_jsonl(folder / "triples.jsonl", triples())
    common = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": 64,
        "initializer_range": 0.15,
    }
    tokenizer = {"vocab_size": 200, "max_token_length": 2}
    fast = {"batch_size": 8, "learning_rate": 5.0e-3, "epochs": 10}
    recipe = {
        "name": "tiny",
        "description": "for tests",
        "dim": 32,
        "prompts": {"query": "检索：", "STS": "语义："},
        "query": {
            "max_length": 32,
            "tokenizer": tokenizer,
            "config": {**common, "model_type": "gte", "hidden_dropout_prob": 0.1},
        },
        "document": {
            "max_length": 48,
            "tokenizer": tokenizer,
            "config": {
                **common,
                "model_type": "qwen3",
                "hidden_size": 48,
                "num_key_value_heads": 1,
                "head_dim": 24,
            },
        },
        "data": [{"name": "answers", "path": str(folder / "triples.jsonl"), "negatives": 1}],
        "stages": [
            {**fast, "stage": "contrastive", "name": "query-init", "side": "query", "temperature": 0.1,
             "learnable_temperature": True},
            {**fast, "stage": "contrastive", "name": "document-init", "side": "document", "temperature": 0.1,
             "dims": [16, 32, 48]},
            {**fast, "stage": "align", "name": "align", "temperature": 0.1},
            {**fast, "stage": "joint", "name": "joint", "learning_rate": 1.0e-3, "temperature": 0.1},
        ],
    }  # fmt: skip
    (folder / "tiny.yaml").write_text(yaml.safe_dump(recipe, allow_unicode=True), encoding="utf-8")


@pytest.fixture(scope="session")
def finished(recipe_file, tmp_path_factory):
    """The run folder of one uninterrupted run. Copy before changing."""
    # Here, for `tests.mar_st.conftest` imports this file where what training needs may be missing.
    from mar_st.recipes.load import load_recipe
    from mar_st.runs.train import train

    def run(folder: Path) -> None:
        out = folder / "finished"
        assert train(load_recipe(recipe_file), out, save_steps=1000, say=silent) == out / "model"

    return once(tmp_path_factory, "run", run) / "finished"


@pytest.fixture
def unfinished(finished, tmp_path):
    """A copy of the finished run from which the last stages can be taken away."""

    def copy(first_missing: str) -> Path:
        out = tmp_path / "run"
        shutil.copytree(finished, out)
        for name in ["model", *STAGES[STAGES.index(first_missing) :]]:
            shutil.rmtree(out / name)
        return out

    return copy
