"""Two processes get the gradients that one process gets from the joined batch, however a stage encodes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

pytestmark = pytest.mark.slow  # about 20 s of CPU

ROOT = Path(__file__).parents[3]

#: Runs one step of every case in one process, then in two, and writes the gradients that the optimiser sees.
SCRIPT = """
import os, socket, sys
from pathlib import Path
import torch
import torch.multiprocessing as mp
from safetensors.torch import save_file
from mar_st.recipes.schema import AlignStage
from mar_st.stages.align import train_align
from mar_st.stages.contrastive import train_contrastive, train_distill, train_joint
from mar_st.stages.trainer import StageTrainer
from tests.mar_st.stages.helpers import FAST, encoder, mar, settings, source, stage

HERE = Path(sys.argv[1])
CACHE = {"plain": {}, "cached": {"mini_batch_size": 3}}

def contrastive(run, **fields):
    fields = {"dims": [16, 4], "both_directions": True, "learnable_temperature": True, **fields}
    made = stage("contrastive", false_negative_margin=0.1, **fields)
    train_contrastive(encoder(), [source()], made, run, {})

def joint(run, **fields):
    fields = {"dims": [16, 4], "lora_r": 2, "lora_dropout": 0.0, **fields}
    train_joint(mar(), [source()], stage("joint", **fields), run, {})

def frozen(run, **fields):
    train_joint(mar(), [source()], stage("joint", freeze="document", **fields), run, {})

def distill(run, **fields):
    train_distill(encoder(), encoder("qwen3", 32, seed=7), [source()], stage("distill", **fields), run, {})

def align(run, **fields):
    fields = {**FAST, "cosine_weight": 0.5, "kl_weight": 1.0, **fields}
    made = AlignStage.model_validate({"stage": "align", "name": "align", **fields})
    train_align(mar(), [source()], made, run, {})

CASES = {"contrastive": contrastive, "joint": joint, "frozen": frozen, "distill": distill, "align": align}

def work(rank, world, port):
    torch.set_num_threads(1)
    names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world}
    if world > 1:
        os.environ.update({name: str(value) for name, value in names.items()})
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    taken = {}
    average = StageTrainer._average_gradients

    def keep(trainer):
        average(trainer)
        trained = trainer.trained_parameters().items()
        taken.update({name: p.grad.clone() for name, p in trained if p.grad is not None})

    StageTrainer._average_gradients = keep
    runs = [(f"{case}-{cache}", run, CACHE[cache]) for case, run in CASES.items() for cache in CACHE]
    for name, run, options in runs:
        taken.clear()
        torch.manual_seed(5)
        run(settings(HERE / str(world) / name), max_steps=1, **options)
        save_file({key: value.contiguous() for key, value in taken.items()}, HERE / f"{name}.{rank}of{world}")

if __name__ == "__main__":
    context = mp.get_context("fork")
    for world in (1, 2):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        workers = [context.Process(target=work, args=(rank, world, port)) for rank in range(world)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        if any(worker.exitcode for worker in workers):
            sys.exit(1)
"""


@pytest.fixture(scope="module")
def gradients(tmp_path_factory):
    folder = tmp_path_factory.mktemp("distributed")
    script = folder / "script.py"
    script.write_text(SCRIPT)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAR_")}
    environment |= {
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": str(ROOT),
    }
    process = subprocess.run(
        [sys.executable, str(script), str(folder)],
        capture_output=True, text=True, check=False, cwd=ROOT, env=environment, timeout=110,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr[-4000:]
    return lambda name, rank, world: load_file(folder / f"{name}.{rank}of{world}")


def _distance(gradients, wanted):
    """Largest distance of a gradient, relative to its own length."""
    assert gradients.keys() == wanted.keys()
    return max(float((gradients[name] - grad).norm() / (grad.norm() + 1e-6)) for name, grad in wanted.items())


@pytest.mark.parametrize("cache", ["plain", "cached"])
@pytest.mark.parametrize("case", ["contrastive", "joint", "frozen", "distill", "align"])
def test_two_processes_take_the_gradients_of_the_joined_batch(gradients, case, cache):
    whole = gradients(f"{case}-{cache}", 0, 1)
    halves = [gradients(f"{case}-{cache}", rank, 2) for rank in (0, 1)]
    assert all(torch.equal(halves[0][name], halves[1][name]) for name in whole)
    assert _distance(halves[0], whole) < 1e-5
    assert max(float(grad.abs().max()) for grad in whole.values()) > 1e-3
    assert ("loss.log_scale" in whole) is (case == "contrastive")
