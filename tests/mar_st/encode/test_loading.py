"""Tests of the check that the memory is enough for a model, before the model is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mar_st import MAR
from tests.mar_st.encode.corpora import ATOL, encode, rows

if TYPE_CHECKING:
    from pathlib import Path


def test_only_the_document_side_is_loaded(model: Path, corpus: Path, tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(model, copy)
    for folder in copy.glob("query_*"):
        shutil.rmtree(folder)
    expected = MAR.from_pretrained(model, device="cpu").encode_corpus(rows(100))
    np.testing.assert_allclose(encode(copy, corpus, tmp_path / "v")[:], expected, atol=ATOL)
