from __future__ import annotations

import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import set_seed

from mar_st.data.training import Source
from mar_st.errors import MarError
from mar_st.model.encoders import load_encoder
from mar_st.recipes.schema import Data, RetroMAEStage
from mar_st.stages.retromae import train_retromae
from mar_st.stages.trainer import StageSettings, StageTrainer, read_metrics

TEXTS = [f"头疼发热{a}{b}吃什么药好呢" for a in "感冒咳嗽" for b in "高血压医生"]


def _stage(**fields):
    content = {"stage": "retromae", "name": "pre", "batch_size": 10, "learning_rate": 3e-3, "epochs": 6}
    return RetroMAEStage.model_validate({**content, "warmup_ratio": 0.0, **fields})


def _train(encoder, folder, texts=TEXTS, weight=1.0, **fields):
    torch.manual_seed(0)
    model = SentenceTransformer(modules=load_encoder(encoder, "query"), device="cpu")
    data = Data(name="texts", path="-", form="texts", role="document", weight=weight)
    set_seed(0)
    train_retromae(
        model, [Source(data, texts=texts)], _stage(**fields), StageSettings(folder, 0, save_steps=3)
    )
    return model


def test_the_loss_falls_and_an_interrupted_run_gives_the_same_weights(query_source, tmp_path, monkeypatch):
    whole = _train(query_source, tmp_path / "whole", epochs=14)
    losses = [row["loss"] for row in read_metrics(tmp_path / "whole/metrics.jsonl") if "loss" in row]
    assert losses[-1] < losses[0]
    step = StageTrainer.training_step

    def killed(self, *args, **kwargs):
        if self.state.global_step == 22:
            raise KeyboardInterrupt
        return step(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(StageTrainer, "training_step", killed)
        with pytest.raises(KeyboardInterrupt):
            _train(query_source, tmp_path / "part", epochs=14)
    resumed = _train(query_source, tmp_path / "part", epochs=14)
    for (name, one), two in zip(whole.state_dict().items(), resumed.state_dict().values(), strict=True):
        assert torch.equal(one, two), name


def test_the_weight_of_a_data_entry_is_its_share_of_the_texts(query_source, tmp_path):
    _train(query_source, tmp_path, weight=0.5, epochs=1, batch_size=5)
    assert read_metrics(tmp_path / "metrics.jsonl")[-1]["step"] == len(TEXTS) // 10


def test_data_without_texts_are_refused(query_source, tmp_path):
    with pytest.raises(MarError, match="hold no texts"):
        _train(query_source, tmp_path, texts=[])
