"""Training of graders: learns the grades, resumes, refuses what it cannot use."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from sentence_transformers import CrossEncoder
from sentence_transformers.cross_encoder import CrossEncoderTrainer
from transformers import AutoModel

from mar_st.errors import MarError
from mar_st.files import locked
from mar_st.graded import train
from mar_st.graded.train import GradedPair, train_grader
from mar_st.model.reranker import Reranker
from tests.mar_st.conftest import make_config, make_tokenizer
from tests.mar_st.graded.graded_pairs import HOW, pairs, settings


def weights(folder):
    return {name: value.cpu().numpy() for name, value in CrossEncoder(str(folder)).state_dict().items()}


def test_a_grader_learns_the_grades_and_their_thresholds(trained, base):
    assert trained["kappa"] > 0.95
    assert trained["labels"] == [0, 2, 4]
    assert sum(trained["trained"].values()) + sum(trained["calibrated"].values()) == len(pairs())
    assert any(
        not np.array_equal(a, b)
        for a, b in zip(weights(base).values(), weights(trained["out"]).values(), strict=True)
    )


@pytest.mark.thorough
def test_an_interrupted_training_resumes_to_the_same_weights(base, trained, tmp_path, monkeypatch):
    steps, whole = [], CrossEncoderTrainer.training_step
    monkeypatch.setattr(train, "SAVE_STEPS", 5)

    def step(self, *arguments, **options):
        steps.append(1)
        if len(steps) == 8:
            raise KeyboardInterrupt
        return whole(self, *arguments, **options)

    out = tmp_path / "judge"
    with monkeypatch.context() as patch:
        patch.setattr(CrossEncoderTrainer, "training_step", step)
        with pytest.raises(KeyboardInterrupt):
            train_grader(settings(pairs(), base, out))
    assert not out.exists()
    again: list[int] = []

    def counted(self, *arguments, **options):
        again.append(1)
        return whole(self, *arguments, **options)

    monkeypatch.setattr(CrossEncoderTrainer, "training_step", counted)
    report = train_grader(settings(pairs(), base, out))
    total = -(-sum(trained["trained"].values()) // HOW["batch_size"]) * int(HOW["epochs"])
    assert len(again) == total - 5  # those after the checkpoint
    assert report["bounds"] == trained["bounds"]
    for one, other in zip(weights(out).values(), weights(trained["out"]).values(), strict=True):
        np.testing.assert_array_equal(one, other)
    # Finished, it is not trained again, and not mixed with another.
    assert train_grader(settings(pairs(), base, out)) == report
    assert len(again) == total - 5
    with pytest.raises(MarError, match="is not the result of this command"):
        train_grader(settings(pairs(30), base, out))
    assert not list(tmp_path.glob("*.work"))


@pytest.mark.thorough
def test_layers_are_cut(base, tmp_path):
    report = train_grader(settings(pairs(12), base, tmp_path / "small", layers=1, epochs=1, batch_size=8))
    assert make_config("bert").num_hidden_layers > 1
    assert CrossEncoder(str(report["out"])).config.num_hidden_layers == 1


@pytest.mark.thorough
def test_a_base_without_a_padding_token_is_trained(tmp_path):
    config = make_config("gpt2")
    config.pad_token_id = None
    AutoModel.from_config(config).save_pretrained(tmp_path / "base")
    tokenizer = make_tokenizer("document")
    tokenizer.pad_token = None
    tokenizer.save_pretrained(tmp_path / "base")
    report = train_grader(settings(pairs(), tmp_path / "base", tmp_path / "judge", epochs=1))
    scores = Reranker(report["out"]).score([(pair.query, pair.document) for pair in pairs(2)])
    assert np.isfinite(scores).all()
    assert len(set(scores.round(6))) > 1


def test_unusable_input_is_refused(base, tmp_path, monkeypatch):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(MarError, match="is not the result of this command"):
        train_grader(settings(pairs(), base, tmp_path / "full"))
    with pytest.raises(MarError, match="two labels at least"):
        rows = [GradedPair(f"头疼{n}", "休息", 0) for n in range(30)]
        train_grader(settings(rows, base, tmp_path / "new"))
    layers = make_config("bert").num_hidden_layers
    with pytest.raises(MarError, match=rf"no weights of .*num_hidden_layers {layers + 1}"):
        train_grader(settings(pairs(), base, tmp_path / "new", layers=layers + 1))
    assert not (tmp_path / "new").exists()
    with locked(tmp_path / "new.work"), pytest.raises(MarError, match="Another process is writing"):
        train_grader(settings(pairs(), base, tmp_path / "new"))
    monkeypatch.setitem(sys.modules, "accelerate", None)
    with pytest.raises(MarError, match="accelerate"):
        train_grader(settings(pairs(), base, tmp_path / "new"))
