"""Graders: trained on grades, resumed, read as cross-encoders."""

from __future__ import annotations

import numpy as np
import pytest
from sentence_transformers import CrossEncoder
from sentence_transformers.cross_encoder import CrossEncoderTrainer
from torch import nn
from transformers import AutoModelForSequenceClassification

from mar_st.errors import MarError
from mar_st.graded import (
    THRESHOLDS_FILE,
    GradedPair,
    Grader,
    GraderSettings,
    train_grader,
)
from mar_st.model.reranker import Reranker
from tests.mar_st.conftest import make_config, make_tokenizer

#: The label depends only on the document, not on the query.
DOCUMENTS = {0: "感冒发热", 2: "咳嗽怎么办", 4: "高血压医生你好"}
HOW = GraderSettings(
    max_length=24, epochs=12, batch_size=16, learning_rate=2e-2, calibration=0.3, folds=3, save_steps=5
)


def pairs(queries=24):
    return [
        GradedPair(f"头疼{number}", text, label)
        for number in range(queries)
        for label, text in DOCUMENTS.items()
    ]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base") / "base"
    config = make_config("bert")
    config.num_labels = 1
    AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)
    make_tokenizer("query").save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def trained(base, tmp_path_factory):
    return train_grader(pairs(), base, tmp_path_factory.mktemp("out") / "judge", HOW)


def weights(folder):
    return {name: value.cpu().numpy() for name, value in CrossEncoder(str(folder)).state_dict().items()}


def test_a_grader_learns_the_grades_and_their_thresholds(trained):
    assert trained.kappa > 0.95
    assert trained.thresholds.labels == (0, 2, 4)
    assert sum(trained.trained.values()) + sum(trained.calibrated.values()) == len(pairs())
    grader = Grader(trained.folder)
    unseen = [("肚子疼", text) for text in DOCUMENTS.values()]
    assert grader.label(unseen).tolist() == list(DOCUMENTS)
    assert grader.identity() == Grader(trained.folder).identity()
    assert THRESHOLDS_FILE in grader.identity()


def test_the_folder_is_a_cross_encoder_like_any_other(trained, base):
    asked = [("肚子疼", text) for text in DOCUMENTS.values()]
    stock = CrossEncoder(str(trained.folder))
    np.testing.assert_allclose(stock.predict(asked), Grader(trained.folder).scores(asked), atol=1e-6)
    np.testing.assert_allclose(stock.predict(asked), Reranker(trained.folder).score(asked), atol=1e-6)
    assert stock.num_labels == 1
    # As a teacher it gives its logits, in the same order.
    logits = stock.predict(asked, activation_fn=nn.Identity())
    assert np.argsort(logits).tolist() == np.argsort(stock.predict(asked)).tolist()
    assert any(
        not np.array_equal(a, b)
        for a, b in zip(weights(base).values(), weights(trained.folder).values(), strict=True)
    )


@pytest.mark.slow
def test_an_interrupted_training_resumes_to_the_same_weights(base, trained, tmp_path, monkeypatch):
    steps, whole = [], CrossEncoderTrainer.training_step

    def step(self, *arguments, **options):
        steps.append(1)
        if len(steps) == 8:
            raise KeyboardInterrupt
        return whole(self, *arguments, **options)

    out = tmp_path / "judge"
    with monkeypatch.context() as patch:
        patch.setattr(CrossEncoderTrainer, "training_step", step)
        with pytest.raises(KeyboardInterrupt):
            train_grader(pairs(), base, out, HOW)
    assert not out.exists()
    again: list[int] = []

    def counted(self, *arguments, **options):
        again.append(1)
        return whole(self, *arguments, **options)

    monkeypatch.setattr(CrossEncoderTrainer, "training_step", counted)
    report = train_grader(pairs(), base, out, HOW)
    total = -(-sum(trained.trained.values()) // HOW.batch_size) * int(HOW.epochs)
    assert len(again) == total - 5  # those after the checkpoint
    assert report.thresholds == trained.thresholds
    for one, other in zip(weights(out).values(), weights(trained.folder).values(), strict=True):
        np.testing.assert_array_equal(one, other)
    # Finished, it is not trained again, and not mixed with another.
    assert train_grader(pairs(), base, out, HOW) == report
    assert len(again) == total - 5
    with pytest.raises(MarError, match="other data or settings"):
        train_grader(pairs(30), base, out, HOW)
    assert not list(tmp_path.glob("*.work"))


@pytest.mark.thorough
def test_layers_are_cut_and_the_lowest_label_is_thinned_out(base, tmp_path):
    layers = make_config("bert").num_hidden_layers
    many = [*pairs(12), *(GradedPair(f"头疼{n}", f"感冒{m}", 0) for n in range(12) for m in range(5))]
    how = GraderSettings(layers=1, lowest=2, epochs=1, batch_size=8, calibration=0.25, folds=2, max_length=24)
    report = train_grader(many, base, tmp_path / "small", how)
    assert layers > 1
    assert CrossEncoder(str(report.folder)).config.num_hidden_layers == 1
    assert report.trained == {0: 2 * 9, 2: 9, 4: 9}
    assert report.calibrated == {0: 6 * 3, 2: 3, 4: 3}


def test_folders_without_a_grader_are_refused(base, tmp_path):
    with pytest.raises(MarError, match=f"holds no {THRESHOLDS_FILE}"):
        Grader(base)
    for content in ('{"labels": ["S"], "bounds": []}', '{"labels": [0', "[]"):
        (tmp_path / THRESHOLDS_FILE).write_text(content, encoding="utf-8")
        with pytest.raises(MarError, match="is not what 'mar cross-encoder' writes"):
            Grader(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(MarError, match="is not empty"):
        train_grader(pairs(), base, tmp_path / "full", HOW)
    with pytest.raises(MarError, match="two labels at least"):
        train_grader([GradedPair(f"头疼{n}", "休息", 0) for n in range(30)], base, tmp_path / "new", HOW)
