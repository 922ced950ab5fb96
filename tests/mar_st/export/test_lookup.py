"""Tests of exported lookup encoders: NumPy, JavaScript and the exported give the vectors of the module."""

from __future__ import annotations

import numpy as np
import pytest

from mar_st.export import ExportSettings, export
from mar_st.index.build import build_index
from mar_st.index.searcher import Searcher
from mar_st.model.digest import space_of
from mar_st.online.encoders import load_query_encoder
from mar_st.online.protocol import EncoderError
from tests.mar_st.lookup.conftest import DIM, family, fitted, make_texts, texts, vectors  # noqa: F401

QUERIES = [
    *make_texts(40, seed=11),
    "",
    " \n\u3000",
    "zzz",
    "😀头疼\ud83d",
    "ＡＢＣ\u3000ﬁ½ É\u0301 İ ΑΣ",
    "abcd1234 头疼\x1c\x85发热\u200b",
    "头疼吃药" * 25_000,
]


def run(model, out):
    return export(ExportSettings(model=str(model), out=out, query_encoder="query-lookup"))


@pytest.fixture(scope="session")
def original(family):  # noqa: F811
    return load_query_encoder(family / "mar", query="query-lookup", backend="torch")


@pytest.fixture(scope="session")
def exported(family, tmp_path_factory):  # noqa: F811
    out = tmp_path_factory.mktemp("exported") / "out"
    run(family / "mar", out)
    return out


def test_the_module_is_a_query_encoder(original, family):  # noqa: F811
    assert (original.dim, original.normalised, original.max_length) == (DIM, True, 1024)
    assert original.space == space_of(family / "mar")
    assert original.count_tokens(["", " 头  疼 ", "a" * 5000]) == [0, 3, 5000]
    vectors = original.encode(QUERIES)  # noqa: F811
    assert np.isfinite(vectors).all()
    assert original.prompts["query"]
    np.testing.assert_array_equal(vectors[:3], original.encode(QUERIES[:3], prompt_name="document"))


def test_numpy_agrees_with_the_module(original, family, tmp_path):  # noqa: F811
    run(family / "mar", tmp_path / "out")
    encoder = load_query_encoder(tmp_path / "out")
    vectors = encoder.encode(QUERIES)  # noqa: F811
    assert vectors.dtype == np.float32
    assert ((vectors * original.encode(QUERIES)).sum(axis=1) > 1 - 1e-3).all()
    np.testing.assert_array_equal(np.concatenate([encoder.encode([text]) for text in QUERIES]), vectors)
    assert encoder.encode([]).shape == (0, DIM)
    assert encoder.count_tokens(QUERIES) == original.count_tokens(QUERIES)
    for name in ("dim", "space", "normalised", "max_length", "prompts"):
        assert getattr(encoder, name) == getattr(original, name)
    assert space_of(tmp_path / "out") == original.space
    loaded = load_query_encoder(tmp_path / "out", backend="torch")
    np.testing.assert_allclose(loaded.encode(QUERIES), vectors, atol=1e-5)
    with pytest.raises(EncoderError, match="no prompt 'nix'"):
        encoder.encode(["头疼"], prompt_name="nix")


def test_an_exported_encoder_searches_an_index(exported, family, tmp_path):  # noqa: F811
    build_index(family / "vectors", tmp_path / "index")
    searcher = Searcher.open(tmp_path / "index", encoder=str(exported))
    results = searcher.search(["头疼吃什么药", "高血压吃什么"], k=1)
    assert [hits[0].id for hits in results] == ["d1", "d3"]
