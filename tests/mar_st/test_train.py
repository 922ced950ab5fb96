from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer

from mar_st import MAR
from mar_st.recipe import load_recipe
from mar_st.stages.trainer import MetricsFile
from mar_st.train import TrainError, train

if TYPE_CHECKING:
    from pathlib import Path

SYMPTOMS = ["头疼", "发热", "咳嗽", "胸闷", "腹泻", "失眠", "乏力", "皮疹"]
QUESTIONS = {
    "吃什么药": "用药建议：{}患者可以在医生指导下服用药物。",
    "挂什么科": "就诊科室：{}应当先到门诊挂号。",
    "是什么原因": "病因说明：引起{}的原因有多种。",
    "怎么预防": "预防方法：避免{}需要注意作息。",
    "要做什么检查": "检查项目：{}一般先做血常规。",
}
STAGES = ["01-query-init", "02-document-init", "03-align", "04-joint"]


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    """Matrices of this size only lose by threads that wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _silent(line: str) -> None:
    del line


def _weights(folder: Path) -> dict[str, bytes]:
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*.safetensors")}
    assert files
    return files


@pytest.fixture(scope="module")
def recipe_file(tmp_path_factory):
    """A recipe of four short stages on 40 triples; with dropout, whose stream resuming must restore."""
    folder = tmp_path_factory.mktemp("recipe")
    rows = []
    for symptom in SYMPTOMS:
        for ending, answer in QUESTIONS.items():
            others = [text for other, text in QUESTIONS.items() if other != ending]
            rows.append(
                {
                    "query": f"{symptom}{ending}",
                    "positive": answer.format(symptom),
                    "negatives": [text.format(symptom) for text in others],
                }
            )
    assert len(rows) == 40
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (folder / "triples.jsonl").write_text(lines, encoding="utf-8")
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
    path = folder / "tiny.yaml"
    path.write_text(yaml.safe_dump(recipe, allow_unicode=True), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def finished(recipe_file, tmp_path_factory):
    """The run folder of one uninterrupted run."""
    out = tmp_path_factory.mktemp("runs") / "finished"
    assert train(load_recipe(recipe_file), out, save_steps=1000, say=_silent) == out / "model"
    return out


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


def _texts(recipe_file):
    rows = [json.loads(line) for line in recipe_file.with_name("triples.jsonl").open(encoding="utf-8")]
    return [row["query"] for row in rows], [row["positive"] for row in rows]


def test_the_model_retrieves_and_loads_everywhere(finished, recipe_file):
    queries, positives = _texts(recipe_file)
    plain = SentenceTransformer(str(finished / "model"), device="cpu")
    scores = plain.similarity(plain.encode_query(queries), plain.encode_document(positives)).numpy()
    assert plain.get_embedding_dimension() == 32
    assert (scores.argmax(axis=1) == np.arange(40)).mean() > 0.6  # by chance 0.025
    online = MAR.from_pretrained(finished / "model", routes="query", device="cpu")
    np.testing.assert_allclose(online.encode_queries(queries), plain.encode_query(queries), atol=1e-5)
    assert plain.prompts == {"document": "", "query": "检索：", "STS": "语义："}
    assert _weights(finished / "model") == _weights(finished / "04-joint" / "model")


@pytest.mark.parametrize("stage", STAGES)
def test_the_loss_falls(finished, stage):
    rows = [json.loads(line) for line in (finished / stage / "metrics.jsonl").open()]
    losses = [row["loss"] for row in rows if "loss" in row]
    assert losses[0] > losses[-1] > 0
    assert not (finished / stage / "checkpoints").exists()


def test_finished_stages_are_kept(finished, recipe_file):
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("0*/**/*") if path.is_file()}
    lines = []
    train(load_recipe(recipe_file), finished, say=lines.append)
    kept = [line for line in lines if line.endswith("finished before, kept")]
    assert len(kept) == 4
    assert before == {path: path.stat().st_mtime_ns for path in finished.rglob("0*/**/*") if path.is_file()}


@pytest.mark.parametrize(
    ("override", "kept"),
    [
        ("stages.3.temperature=0.2", ["query-init", "document-init", "align"]),
        ("stages.2.epochs=1", ["query-init", "document-init"]),
        ("stages.1.dims=[24,48]", ["query-init"]),
        ("stages.0.temperature=0.2", ["document-init"]),  # which does not depend on the queries
        ("storage_dtype=float16", ["query-init", "document-init", "align", "joint"]),
    ],
)
def test_a_change_reruns_its_stage_and_what_follows(finished, recipe_file, tmp_path, override, kept):
    out = tmp_path / "run"
    shutil.copytree(finished, out)
    lines = []
    train(load_recipe(recipe_file, [override]), out, say=lines.append)
    assert [line.split()[1].rstrip(":") for line in lines if "kept" in line] == kept
    assert _weights(out / "model") != _weights(finished / "model")


def test_changed_data_are_noticed(finished, recipe_file, tmp_path):
    out, data = tmp_path / "run", tmp_path / "triples.jsonl"
    original = recipe_file.with_name("triples.jsonl").read_text(encoding="utf-8")
    data.write_text(original, encoding="utf-8")
    settings = [f"data.0.path={data}", *(f"stages.{index}.epochs=0.2" for index in range(4))]
    train(load_recipe(recipe_file, settings), out, save_steps=1000, say=_silent)
    data.write_text(original.replace("头疼", "牙疼"), encoding="utf-8")
    lines = []
    train(load_recipe(recipe_file, settings), out, save_steps=1000, say=lines.append)
    assert len([line for line in lines if "data changed" in line]) == 4


def test_the_folder_of_another_recipe_is_refused(finished, recipe_file):
    with pytest.raises(TrainError, match="holds a run of another recipe"):
        train(load_recipe(recipe_file, ["name=other"]), finished)


def test_a_run_up_to_a_stage(recipe_file, finished, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(finished / "01-query-init", out / "01-query-init")
    recipe = load_recipe(recipe_file, ["stages.1.epochs=0.2"])
    with pytest.raises(
        TrainError, match=r"tiny has no stage 'aling'; it has query-init, document-init, align"
    ):
        train(recipe, out, until="aling", say=_silent)
    with pytest.raises(TrainError, match="holds no run to resume"):
        train(recipe, out, resume=True, say=_silent)
    model = train(recipe, out, until="document-init", say=_silent)
    assert model == out / "02-document-init" / "model"
    assert sorted(path.name for path in out.iterdir() if path.is_dir()) == STAGES[:2]
    assert SentenceTransformer(str(model), device="cpu").encode(["头疼"]).shape == (1, 48)
    assert train(recipe, out, until="query-init", resume=True, say=_silent) == out / "01-query-init" / "model"


def test_runs_share_a_store(recipe_file, finished, tmp_path, monkeypatch):
    monkeypatch.setenv("MAR_STAGES", str(tmp_path / "store"))
    first, second = tmp_path / "first", tmp_path / "second"
    shutil.copytree(finished, first)
    lines = []
    train(load_recipe(recipe_file), first, say=lines.append)  # moves its stages into the store
    assert len([line for line in lines if line.endswith("finished before, kept")]) == 4
    assert all((first / stage).is_symlink() for stage in STAGES)
    lines.clear()
    other = load_recipe(recipe_file, ["name=other", "stages.3.epochs=0.2", "storage_dtype=float16"])
    train(other, second, say=lines.append)
    assert [line.split()[1].rstrip(":") for line in lines if "kept" in line] == [
        "query-init", "document-init", "align"
    ]  # fmt: skip
    assert (second / "03-align").resolve() == (first / "03-align").resolve()
    listed = json.loads((second / "stages.json").read_text(encoding="utf-8"))
    assert list(listed) == ["query-init", "document-init", "align", "joint"]
    assert all((second / entry["folder"] / "done.json").is_file() for entry in listed.values())
    # Weights are linked, so packing one run's model must leave the stage as it was.
    before, after = _weights(first / "04-joint" / "model"), _weights(finished / "04-joint" / "model")
    assert before == after
    stored = _weights((second / "04-joint").resolve() / "model")
    assert sum(map(len, _weights(second / "model").values())) < 0.6 * sum(map(len, stored.values()))


def test_a_stage_in_the_hands_of_another_run_is_waited_for(recipe_file, tmp_path):
    import threading

    from filelock import FileLock

    store = tmp_path / "store"
    recipe = load_recipe(recipe_file, ["stages.0.epochs=0.2"])
    train(recipe, tmp_path / "first", until="query-init", stages=store, say=_silent)
    (folder,) = (path for path in store.iterdir() if path.is_dir())
    held, waited = threading.Event(), threading.Event()

    def hold():
        with FileLock(store / f"{folder.name}.lock"):
            held.set()
            waited.wait(30)

    other = threading.Thread(target=hold)
    other.start()
    held.wait(30)
    lines = []

    def say(line):
        lines.append(line)
        if "waiting" in line:
            waited.set()

    train(recipe, tmp_path / "second", until="query-init", stages=store, say=say)
    other.join()
    assert any("another run trains this stage; waiting" in line for line in lines)
    assert lines[-1] == "stage query-init: finished before, kept"


def test_align_leaves_the_document_encoder_untouched(finished):
    """Bit for bit: a vector space that is shared with stored document vectors must stay what it was."""
    started = load_file(finished / "02-document-init/model/model.safetensors")
    aligned = load_file(finished / "03-align/model/document_0_Transformer/model.safetensors")
    joint = load_file(finished / "04-joint/model/document_0_Transformer/model.safetensors")
    assert started.keys() == aligned.keys() == joint.keys()
    assert all(torch.equal(started[name], aligned[name]) for name in started)
    assert not any(torch.equal(aligned[name], joint[name]) for name in joint if "proj" in name)


def test_align_and_joint_change_the_query_encoder(finished):
    files = [
        "01-query-init/model/model.safetensors",
        "03-align/model/query_0_Transformer/model.safetensors",
        "04-joint/model/query_0_Transformer/model.safetensors",
    ]
    started, aligned, joint = (load_file(finished / file) for file in files)
    for before, after in ((started, aligned), (aligned, joint)):
        assert not any(torch.equal(before[name], after[name]) for name in before if "proj.weight" in name)


def test_truncation_survives_joint_training(finished):
    dense = next((finished / "04-joint/model").glob("document_*_Dense/model.safetensors"))
    (weight,) = load_file(dense).values()
    assert torch.equal(weight, torch.eye(32, 48))


LORA = ["stages.3.lora_r=4", "stages.3.lora_alpha=16", "stages.3.learning_rate=0.02"]


def test_joint_with_lora_is_merged(unfinished, recipe_file):
    pytest.importorskip("peft", reason="LoRA needs the train extra")
    out = unfinished("04-joint")
    train(load_recipe(recipe_file, LORA), out, say=_silent)
    assert not list((out / "model").rglob("adapter_*"))
    before = load_file(out / "03-align/model/document_0_Transformer/model.safetensors")
    after = load_file(out / "model/document_0_Transformer/model.safetensors")
    assert before.keys() == after.keys()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {name for name in before if name.endswith("_proj.weight")}
    ranks = [torch.linalg.matrix_rank(after[name] - before[name], rtol=1e-3) for name in changed]
    assert max(ranks) == 4


# -- a killed run gives the same weights as one that was not --


class _Killed(BaseException):
    """Stands for the end of the process: nothing in a training loop may catch it."""


def _die_after_step(step):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == step:
            raise _Killed

    return on_step_end


RESUMED = [
    pytest.param("01-query-init", [], id="query-init-learnt-temperature"),
    pytest.param("02-document-init", [], id="document-init-matryoshka"),
    pytest.param("03-align", [], id="align"),
    pytest.param("04-joint", [], id="joint"),
    pytest.param("04-joint", LORA, id="joint-lora"),
]


@pytest.mark.parametrize(("stage", "overrides"), RESUMED)
def test_resumed_equals_uninterrupted(
    finished, unfinished, recipe_file, monkeypatch, tmp_path, stage, overrides
):
    recipe = load_recipe(recipe_file, overrides)
    out = unfinished(stage)
    expected = finished
    if overrides:
        pytest.importorskip("peft", reason="LoRA needs the train extra")
        expected = tmp_path / "expected"
        shutil.copytree(out, expected)
        train(recipe, expected, save_steps=1000, say=_silent)
    with monkeypatch.context() as patch:
        patch.setattr(MetricsFile, "on_step_end", _die_after_step(7))
        with pytest.raises(_Killed):
            train(recipe, out, save_steps=3, say=_silent)
    assert [path.name for path in (out / stage / "checkpoints").iterdir()] == ["checkpoint-6"]
    started = []
    original = MetricsFile.on_train_begin

    def on_train_begin(self, args, state, control, **kwargs):
        started.append(state.global_step)
        original(self, args, state, control, **kwargs)

    monkeypatch.setattr(MetricsFile, "on_train_begin", on_train_begin)
    # A killed run may be started again with other settings for its checkpoints.
    train(recipe, out, save_steps=1000, say=_silent)
    assert started[0] == 6
    assert _weights(out / stage / "model") == _weights(expected / stage / "model")
    assert _weights(out / "model") == _weights(expected / "model")
    rows = [json.loads(line)["step"] for line in (out / stage / "metrics.jsonl").open()]
    assert rows == [json.loads(line)["step"] for line in (expected / stage / "metrics.jsonl").open()]


def test_a_run_killed_after_its_last_step_has_only_to_save(finished, unfinished, recipe_file, monkeypatch):
    out = unfinished("04-joint")

    def on_train_end(self, args, state, control, **kwargs):
        raise _Killed

    with monkeypatch.context() as patch:
        patch.setattr(MetricsFile, "on_train_end", on_train_end)
        with pytest.raises(_Killed):
            train(load_recipe(recipe_file), out, save_steps=3, say=_silent)
    train(load_recipe(recipe_file), out, save_steps=3, say=_silent)
    assert _weights(out / "model") == _weights(finished / "model")
    steps = [(out if run else finished) / "04-joint" / "metrics.jsonl" for run in (0, 1)]
    assert len(steps[0].read_text().splitlines()) == len(steps[1].read_text().splitlines())


def test_a_checkpoint_cut_off_while_it_was_written_is_passed_over(
    finished, unfinished, recipe_file, monkeypatch
):
    from transformers import Trainer

    out = unfinished("04-joint")
    original = Trainer._save_optimizer_and_scheduler

    def save(self, output_dir):
        if self.state.global_step == 6:
            raise _Killed
        original(self, output_dir)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_save_optimizer_and_scheduler", save)
        with pytest.raises(_Killed):
            train(load_recipe(recipe_file), out, save_steps=3, say=_silent)
    names = {path.name for path in (out / "04-joint" / "checkpoints").iterdir()}
    assert names == {"checkpoint-3", "checkpoint-6"}
    train(load_recipe(recipe_file), out, save_steps=1000, say=_silent)
    assert _weights(out / "model") == _weights(finished / "model")


KILLED_PROCESS = """
import os, signal, sys
from mar_st.recipe import load_recipe
from mar_st.stages.trainer import MetricsFile
from mar_st.train import train

def on_step_end(self, args, state, control, **kwargs):
    if stage in str(self.path) and state.global_step == 9:
        os.kill(os.getpid(), signal.SIGKILL)

recipe, out, stage = sys.argv[1:]
MetricsFile.on_step_end = on_step_end
train(load_recipe(recipe), out, save_steps=2)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_killed_processes_resume_to_the_same_weights(recipe_file, tmp_path):
    def start(out, stage):
        command = [sys.executable, "-c", KILLED_PROCESS, str(recipe_file), str(out), stage]
        environment = {
            **os.environ,
            "HF_HUB_OFFLINE": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "OMP_NUM_THREADS": "1",
        }
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)

    whole = start(tmp_path / "whole", "no such stage")
    assert whole.returncode == 0, whole.stderr
    out = tmp_path / "killed"
    for stage in ("align", "joint"):
        assert start(out, f"-{stage}").returncode == -signal.SIGKILL
        (checkpoint,) = next(out.glob(f"*-{stage}/checkpoints")).iterdir()
        assert checkpoint.name == "checkpoint-8"
    last = start(out, "no such stage")
    assert last.returncode == 0, last.stderr
    assert _weights(out / "model") == _weights(tmp_path / "whole" / "model")


@pytest.mark.slow
def test_two_processes_train_one_run(recipe_file, tmp_path):
    """Both take part in every stage, the first one writes, and the run goes on in a single process."""
    recipe = load_recipe(recipe_file, [f"stages.{index}.epochs=0.4" for index in range(4)])
    path = tmp_path / "short.yaml"
    path.write_text(yaml.safe_dump(recipe.model_dump(mode="json"), allow_unicode=True), encoding="utf-8")
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--standalone"]
    command = [*launch, "-m", "mar_st.cli", "train", str(path), "--out", str(tmp_path / "run")]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("stage joint: joint") == 1
    assert MAR.from_pretrained(tmp_path / "run/model", device="cpu").encode_queries(["头疼"]).shape == (1, 32)
    lines = []
    train(load_recipe(path), tmp_path / "run", say=lines.append)
    assert len([line for line in lines if line.endswith("finished before, kept")]) == 4


# -- symmetric recipes --


@pytest.mark.parametrize(("absent", "side"), [("document", "query"), ("query", "document")])
def test_one_backbone_gives_a_symmetric_model(recipe_file, tmp_path, absent, side):
    content = yaml.safe_load(recipe_file.read_text(encoding="utf-8"))
    stages = [stage for stage in content["stages"] if stage.get("side") == side]
    path = tmp_path / "one.yaml"
    path.write_text(
        yaml.safe_dump({**content, "name": "one", absent: None, "stages": stages}), encoding="utf-8"
    )
    recipe = load_recipe(path)
    assert not recipe.asymmetric
    model = SentenceTransformer(str(train(recipe, tmp_path / "out", say=_silent)), device="cpu")
    assert [type(module).__name__ for module in model] == ["Transformer", "Pooling", "Normalize"]
    assert model.get_embedding_dimension() == content[side]["config"]["hidden_size"]
    queries, positives = _texts(recipe_file)
    np.testing.assert_allclose(
        model.encode_query(queries[:3]), model.encode_document([f"检索：{q}" for q in queries[:3]]), atol=1e-5
    )
    scores = model.similarity(model.encode_query(queries), model.encode_document(positives)).numpy()
    assert (scores.argmax(axis=1) == np.arange(40)).mean() > 0.5
