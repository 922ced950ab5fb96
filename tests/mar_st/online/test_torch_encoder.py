"""Tests of query encoders that sentence-transformers computes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize

from mar_st.errors import MarError
from mar_st.model.digest import space_of
from mar_st.online.protocol import EncoderError
from mar_st.online.torch_encoder import TorchEncoder
from tests.mar_st.export.conftest import TEXTS, make_model

PROMPTS = {"query": "吃：", "document": ""}


@pytest.fixture(scope="module")
def model():
    return make_model(prompts=PROMPTS)


@pytest.fixture(scope="module")
def encoder(model):
    return TorchEncoder(model)


def test_queries_get_the_vectors_of_sentence_transformers(model, encoder):
    vectors = encoder.encode(TEXTS)
    assert (vectors.dtype, vectors.flags.c_contiguous) == (np.float32, True)
    np.testing.assert_array_equal(vectors, model.encode_query(TEXTS))
    bare = encoder.encode(TEXTS, prompt_name="document")
    np.testing.assert_array_equal(bare, model.encode(TEXTS, prompt=""))
    assert np.abs(vectors - bare).max() > 1e-3
    assert (encoder.dim, encoder.normalised, encoder.max_length) == (32, True, 24)
    assert encoder.encode([]).shape == (0, 32)


def test_tokens_are_counted_with_the_prompt_and_before_they_are_cut(encoder):
    assert encoder.count_tokens(["头疼", "", "头疼" * 40]) == [6, 4, 84]
    assert encoder.count_tokens(["头疼"], prompt_name="document") == [4]
    assert encoder.count_tokens([]) == []


def test_threads_share_an_encoder(encoder):
    """Its tokenizer keeps the padding of a call, which another thread must not change."""
    expected = {text: (encoder.encode([text]), encoder.count_tokens([text])) for text in TEXTS}

    def ask(number):
        text = TEXTS[number % len(TEXTS)]
        np.testing.assert_array_equal(encoder.encode([text]), expected[text][0])
        return encoder.count_tokens([text]) == expected[text][1]

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(ask, range(48)))


def test_a_model_that_cuts_its_vectors_gives_no_unit_lengths():
    model = make_model()
    model.truncate_dim = 8
    encoder = TorchEncoder(model)
    assert (encoder.dim, encoder.normalised) == (8, False)
    vectors = encoder.encode(TEXTS)
    assert vectors.shape == (len(TEXTS), 8)
    assert np.linalg.norm(vectors, axis=1).max() < 0.999


def test_a_model_without_a_tokenizer_is_refused():
    with pytest.raises(EncoderError, match="starts with Normalize, which has no tokenizer"):
        TorchEncoder(SentenceTransformer(modules=[Normalize()], device="cpu"))


@pytest.fixture(scope="module")
def saved(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("torch")
    model.save(str(folder / "full"))
    make_model(prompts=PROMPTS).half().save(str(folder / "half"))
    return folder


def test_an_opened_folder_is_the_saved_encoder(saved, encoder):
    opened = TorchEncoder.open(str(saved / "full"), device="cpu")
    assert opened.identity == TorchEncoder.open(str(saved / "full"), device="cpu").identity
    assert opened.identity != TorchEncoder.open(str(saved / "half"), device="cpu").identity
    assert opened.space == space_of(saved / "full")
    assert opened.query is None
    np.testing.assert_allclose(opened.encode(TEXTS), encoder.encode(TEXTS), atol=1e-6)


def test_a_model_of_the_hub_has_the_space_of_its_folder(model, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    place = tmp_path / "models--org--name"
    model.save(str(place / "snapshots" / "abc"))
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text("abc")
    assert TorchEncoder.open("org/name", device="cpu").space == space_of(place / "snapshots" / "abc")


def test_a_query_encoder_of_a_mar_is_opened_by_its_name(mar, tmp_path):
    mar.save_pretrained(str(tmp_path / "mar"))
    opened = TorchEncoder.open(str(tmp_path / "mar"), device="cpu")
    assert (opened.query, opened.space) == ("query", space_of(tmp_path / "mar"))
    np.testing.assert_allclose(opened.encode(TEXTS), mar.encode_queries(TEXTS), atol=1e-6)
    with pytest.raises(MarError, match="query-small"):
        TorchEncoder.open(str(tmp_path / "mar"), query="query-small", device="cpu")
