from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from transformers import set_seed

from mar_st.data import Source
from mar_st.errors import MarError
from mar_st.model.encoders import load_encoder
from mar_st.recipes.rules import HEAD_FILE
from mar_st.recipes.schema import Data, RetroMAEStage
from mar_st.stages.retromae import train_retromae
from mar_st.stages.settings import StageSettings

TEXTS = [f"头疼发热{a}{b}吃什么药好呢" for a in "感冒咳嗽" for b in "高血压医生"]


def _model(source):
    torch.manual_seed(0)
    return SentenceTransformer(modules=load_encoder(source, "query"), device="cpu")


def _source():
    return Source(Data(name="texts", path="-", form="texts", role="document"), texts=TEXTS)


def _stage(**changes):
    content = {"stage": "retromae", "name": "pre", "batch_size": 8, "learning_rate": 3e-3, "epochs": 8}
    return RetroMAEStage(**{**content, "warmup_ratio": 0.0, **changes})


def _train(model, folder, stage=None, **kwargs):
    set_seed(0)
    train_retromae(
        model, [_source()], stage or _stage(), StageSettings(folder, 0, save_steps=5), {}, **kwargs
    )
    return model


def test_the_loss_falls_and_vectors_change(query_source, tmp_path):
    model = _model(query_source)
    before = model.encode(TEXTS[:3])
    _train(model, tmp_path)
    rows = [json.loads(row) for row in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    losses = [row["loss"] for row in rows if "loss" in row]
    assert losses[-1] < losses[0] if len(losses) > 1 else losses[0] < 8
    assert abs(model.encode(TEXTS[:3]) - before).max() > 1e-3
    assert {key.partition(".")[0] for key in load_file(tmp_path / HEAD_FILE)} == {"decoder", "head"}


@pytest.mark.thorough
def test_an_interrupted_run_gives_the_same_weights(query_source, tmp_path, monkeypatch):
    whole = _train(_model(query_source), tmp_path / "whole")
    from mar_st.stages.trainer import StageTrainer

    plain = StageTrainer.training_step

    def killed(self, *args, **kwargs):
        if self.state.global_step == 8:
            raise KeyboardInterrupt
        return plain(self, *args, **kwargs)

    monkeypatch.setattr(StageTrainer, "training_step", killed)
    with pytest.raises(KeyboardInterrupt):
        _train(_model(query_source), tmp_path / "part")
    monkeypatch.undo()
    resumed = _train(_model(query_source), tmp_path / "part")
    for (name, one), two in zip(whole.state_dict().items(), resumed.state_dict().values(), strict=True):
        assert torch.equal(one, two), name
    one, two = (load_file(tmp_path / folder / HEAD_FILE) for folder in ("whole", "part"))
    assert all(torch.equal(one[key], two[key]) for key in one)


@pytest.mark.thorough
def test_pre_training_continues_from_a_saved_head(query_source, tmp_path):
    model = _train(_model(query_source), tmp_path / "first")
    saved = load_file(tmp_path / "first" / HEAD_FILE)
    _train(
        model,
        tmp_path / "second",
        _stage(max_steps=1, learning_rate=1e-9, resume_head=str(tmp_path / "first")),
    )
    again = load_file(tmp_path / "second" / HEAD_FILE)
    for key, value in saved.items():
        torch.testing.assert_close(again[key], value, atol=1e-6, rtol=0)
    small = {"decoder.positions.weight": torch.zeros(2, 2)}
    from safetensors.torch import save_file

    save_file(small, tmp_path / "other.safetensors")
    with pytest.raises(MarError, match="of another encoder"):
        _train(model, tmp_path / "third", _stage(resume_head=str(tmp_path / "other.safetensors")))
    with pytest.raises(MarError, match=r"resume_head .*: there is no .*retromae\.safetensors"):
        _train(model, tmp_path / "fourth", _stage(resume_head=str(tmp_path)))


def test_data_without_texts_are_refused(query_source, tmp_path):
    empty = Source(Data(name="none", path="-"))
    with pytest.raises(MarError, match="hold no texts"):
        train_retromae(_model(query_source), [empty], _stage(), StageSettings(tmp_path, 0), {})


def test_the_weight_of_a_data_entry_counts(query_source, tmp_path):
    stage = _stage(epochs=1, batch_size=5)
    half = Source(Data(name="texts", path="-", form="texts", role="document", weight=0.5), texts=TEXTS)
    train_retromae(_model(query_source), [half], stage, StageSettings(tmp_path, 0), {})
    state = json.loads((tmp_path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    assert state["step"] == len(TEXTS) / 2 / 5
