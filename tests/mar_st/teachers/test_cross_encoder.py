from __future__ import annotations

import numpy as np
import pytest
import torch

from mar_st.errors import MarError
from mar_st.teachers.model import CrossEncoderTeacher
from mar_st.teachers.store import TeacherStore
from tests.mar_st.stages.helpers import cross_encoder

QUERIES = ["头疼吃什么药", "高血压", "咳嗽"]
PAIRS = [(query, text) for query in QUERIES for text in ("感冒发热怎么办", "头疼", "医生你好", "头疼")]


def test_stored_scores_are_the_computed_ones(tmp_path):
    model = cross_encoder(tmp_path / "model")
    teacher = CrossEncoderTeacher(model, TeacherStore(tmp_path / "store", shard=4))
    scores = np.asarray(teacher.scores(PAIRS))
    assert scores.shape == (len(PAIRS), 1)
    expected = model.predict(PAIRS, activation_fn=torch.nn.Identity())
    np.testing.assert_allclose(scores[:, 0], expected, atol=1e-5)
    assert np.ptp(expected) > 1e-2
    assert np.abs(model.predict(PAIRS) - expected).max() > 1e-2  # a sigmoid, by which it ranks


def test_another_model_or_prompt_is_another_teacher(tmp_path):
    store = TeacherStore(tmp_path / "store")

    def folder(model):
        return str(store.folder(CrossEncoderTeacher(model, store), "document"))

    again = cross_encoder(tmp_path / "c")
    names = {folder(cross_encoder(tmp_path / "a")), folder(again)}
    assert len(names) == 1
    names.add(folder(cross_encoder(tmp_path / "b", seed=5)))
    again.prompts, again.default_prompt_name = {"query": "头疼"}, "query"
    names.add(folder(again))
    assert len(names) == 3


def test_several_scores_per_pair_are_refused(tmp_path):
    with pytest.raises(MarError, match="gives 3 scores per pair; one is needed"):
        CrossEncoderTeacher(cross_encoder(tmp_path / "model", labels=3), TeacherStore(tmp_path / "store"))
