"""Models with modules of this package, loaded without consent to remote code."""

from __future__ import annotations

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize

from mar_st.lookup import LookupEncoder
from mar_st.lookup.features import Features
from mar_st.model.plain import PlainModel

TEXTS = ["头疼", "发热abc"]


@pytest.fixture
def lookup():
    """A saved model whose first module is of this package."""
    return LookupEncoder(Features(["头", "疼", "发", "热", "a"], lengths=(1, 2), max_length=64), 8)


def test_modules_of_this_package_need_no_consent(lookup, tmp_path):
    model = SentenceTransformer(modules=[lookup, Normalize()], device="cpu")
    model.save_pretrained(str(tmp_path), create_model_card=False)
    with pytest.raises(ValueError, match="trust_remote_code"):
        SentenceTransformer(str(tmp_path), device="cpu")
    loaded = PlainModel(str(tmp_path), device="cpu")
    assert isinstance(loaded[0], LookupEncoder)
    np.testing.assert_array_equal(loaded.encode(TEXTS), model.encode(TEXTS))


def test_other_models_load_as_they_do_in_sentence_transformers(encoder_folder):
    plain, usual = (kind(str(encoder_folder), device="cpu") for kind in (PlainModel, SentenceTransformer))
    np.testing.assert_array_equal(plain.encode(TEXTS), usual.encode(TEXTS))
