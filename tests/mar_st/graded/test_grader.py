"""Graders: read as cross-encoders, and as labels."""

from __future__ import annotations

import numpy as np
import pytest
from sentence_transformers import CrossEncoder
from torch import nn

from mar_st.errors import MarError
from mar_st.graded.grader import THRESHOLDS_FILE, Grader
from mar_st.model.reranker import Reranker
from tests.mar_st.graded.graded_pairs import DOCUMENTS


def test_labels_come_from_scores_and_thresholds(trained):
    grader = Grader(trained["out"])
    unseen = [("肚子疼", text) for text in DOCUMENTS.values()]
    assert grader.label(unseen).tolist() == list(DOCUMENTS)
    assert grader.identity() == Grader(trained["out"]).identity()


def test_the_folder_is_a_cross_encoder_like_any_other(trained):
    asked = [("肚子疼", text) for text in DOCUMENTS.values()]
    stock = CrossEncoder(str(trained["out"]))
    np.testing.assert_allclose(stock.predict(asked), Grader(trained["out"]).scores(asked), atol=1e-6)
    np.testing.assert_allclose(stock.predict(asked), Reranker(trained["out"]).score(asked), atol=1e-6)
    assert stock.num_labels == 1
    # As a teacher it gives its logits, in the same order.
    logits = stock.predict(asked, activation_fn=nn.Identity())
    assert np.argsort(logits).tolist() == np.argsort(stock.predict(asked)).tolist()


def test_folders_without_a_grader_are_refused(base, tmp_path):
    with pytest.raises(MarError, match="is not what 'mar cross-encoder' writes"):
        Grader(base)
    for content in ('{"labels": ["S"], "bounds": []}', '{"labels": [0', "[]"):
        (tmp_path / THRESHOLDS_FILE).write_text(content, encoding="utf-8")
        with pytest.raises(MarError, match="is not what 'mar cross-encoder' writes"):
            Grader(tmp_path)
