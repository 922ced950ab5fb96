"""Sequences of texts in arrays."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from mar_st.data.sequences import Texts

TEXTS = ["头疼", "", "发热\u2028", "头疼", "咳嗽"]


@pytest.mark.parametrize("rows", [[], [2], [4, 0, 4], [3, 2, 1, 0]])
def test_texts_are_taken_by_row(rows):
    texts = Texts([pa.array(TEXTS[:3]), pa.array(TEXTS[3:])])
    assert texts.take(np.array(rows, dtype=np.int64)) == [TEXTS[row] for row in rows]
