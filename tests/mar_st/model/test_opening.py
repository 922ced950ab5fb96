from __future__ import annotations

import shutil

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize

from mar_st import MAR
from mar_st.errors import MarError
from mar_st.lookup.fit import fit_lookup
from mar_st.model.encoders import load_encoder
from mar_st.model.family import add_query_encoder
from mar_st.model.loading import has_routes
from mar_st.model.mar import open_model

TEXTS = [f"{word}{asked}" for word in ("肺炎", "感冒", "痛风") for asked in ("怎么治", "吃什么好", "会好吗")]


@pytest.fixture
def lookup():
    vectors = np.random.default_rng(0).standard_normal((len(TEXTS), 32))
    return fit_lookup(TEXTS, vectors, ridge=0.1)


@pytest.fixture
def expected(lookup):
    return SentenceTransformer(modules=[lookup, Normalize()], device="cpu").encode(TEXTS)


@pytest.fixture
def routed(mar, lookup, tmp_path):
    """Folder of a MAR whose default query encoder is a lookup encoder."""
    mar.save_pretrained(str(tmp_path / "mar"))
    document = MAR.from_pretrained(tmp_path / "mar", routes="document", device="cpu")
    document.save_pretrained(str(tmp_path / "routed"))
    add_query_encoder(tmp_path / "routed", [lookup], "query")
    return tmp_path / "routed"


@pytest.fixture
def plain(lookup, tmp_path):
    """Folder of a lookup encoder for both sides, without routes."""
    SentenceTransformer(modules=[lookup, Normalize()]).save_pretrained(str(tmp_path / "plain"))
    return tmp_path / "plain"


@pytest.mark.parametrize("kind", ["routed", "plain"])
def test_models_with_lookup_encoders_open_without_trust_remote_code(request, expected, kind):
    folder = request.getfixturevalue(kind)
    assert has_routes(str(folder)) == (kind == "routed")
    model = open_model(folder, device="cpu")
    assert not model.training
    np.testing.assert_allclose(model.encode_query(TEXTS), expected, atol=1e-6)


def test_a_tokenizer_without_a_padding_token_gets_one(encoder_folder, tmp_path):
    expected = open_model(encoder_folder, device="cpu").encode(TEXTS)
    model = SentenceTransformer(str(encoder_folder), device="cpu")
    model.tokenizer.pad_token = None
    model.save_pretrained(str(tmp_path / "unpadded"), create_model_card=False)
    opened = open_model(tmp_path / "unpadded", device="cpu")
    assert opened.tokenizer.pad_token_id is not None
    np.testing.assert_allclose(opened.encode([*TEXTS, "痛"])[: len(TEXTS)], expected, atol=1e-6)


def test_a_folder_without_tokenizer_files_is_refused(encoder_folder, tmp_path):
    shutil.copytree(encoder_folder, tmp_path / "model")
    gone = [path for path in (tmp_path / "model").rglob("*") if "token" in path.name or "vocab" in path.name]
    assert gone
    for path in gone:
        path.unlink()
    with pytest.raises(MarError, match=r"has no vocabulary: its tokenizer knows only \d special tokens"):
        open_model(tmp_path / "model", device="cpu")
    with pytest.raises(MarError, match="has no vocabulary"):
        load_encoder(str(tmp_path / "model"), "document")
