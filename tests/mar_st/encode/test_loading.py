"""Tests of the check that the memory is enough for a model, before the model is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from mar_st import MAR
from mar_st.encode import loading as loading_module
from mar_st.errors import MarError
from mar_st.model.describe import count_parameters
from mar_st.model.digest import document_parts
from tests.mar_st.encode.corpora import ATOL, SETTINGS, encode, rows

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


def test_a_model_that_does_not_fit_is_refused_before_the_folder_is_begun(
    model: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = sum(count_parameters(part["path"]) for part in document_parts(model) or ())
    monkeypatch.setattr(loading_module, "available_memory", lambda: 3 * weights)  # bfloat16 fits once
    out = tmp_path / "out"

    with pytest.raises(MarError, match=r"in float32, .* Use dtype bfloat16"):
        encode(model, corpus, out)
    bf16 = SETTINGS.model_copy(update={"dtype": "bfloat16"})
    with pytest.raises(MarError, match=r"in bfloat16 in 2 processes, .* Use fewer workers, or a GPU"):
        encode(model, corpus, out, bf16, workers=2)

    assert len(encode(model, corpus, out, bf16)) == 100
    monkeypatch.setattr(loading_module, "available_memory", lambda: 0)
    assert len(encode(model, corpus, out, bf16)) == 100  # complete: nothing is loaded
