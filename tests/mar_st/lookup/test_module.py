from __future__ import annotations

import copy
import json

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize

from mar_st import MAR
from mar_st.errors import MarError
from mar_st.lookup.module import LookupEncoder
from mar_st.model.digest import modules_digest
from mar_st.model.family import add_query_encoder, query_encoders
from tests.mar_st.lookup.conftest import DIM, make_texts

ODD = ["", " \n", "😀", "\ud83d", "头疼" * 50_000, "abc " * 25_000, "é́ ﬁ ½", "zzz"]


def _model(encoder, **options):
    return SentenceTransformer(modules=[copy.deepcopy(encoder), Normalize()], device="cpu", **options)


def test_a_vector_is_the_weighted_sum_of_its_features(fitted):
    text = "头疼头疼 吃什么"
    counts = fitted.features.counts(text)
    assert max(counts.values()) == 2
    table, weight = fitted.embedding.weight.detach().numpy(), fitted.weight.detach().numpy()
    parts = {number: weight[number] * count**0.5 for number, count in counts.items()}
    length = sum(part**2 for part in parts.values()) ** 0.5
    expected = fitted.bias.detach().numpy() + sum(part / length * table[n] for n, part in parts.items())
    vector = fitted(fitted.preprocess([text]))["sentence_embedding"][0].detach().numpy()
    np.testing.assert_allclose(vector, expected, atol=1e-5)


def test_a_vector_does_not_depend_on_the_texts_beside_it(fitted):
    texts = make_texts(20, seed=3)
    together = _model(fitted).encode(texts, batch_size=20)
    alone = np.stack([_model(fitted).encode(text) for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-6)


def test_vectors_are_finite_and_the_bias_for_texts_without_features(fitted):
    vectors = _model(fitted).encode(ODD)
    assert vectors.shape == (len(ODD), DIM)
    assert np.isfinite(vectors).all()
    bias = fitted.bias.detach().numpy()
    for place in (0, 1, 2, 3):
        np.testing.assert_allclose(vectors[place], bias / np.linalg.norm(bias), atol=1e-6)


def test_gradients_are_finite_for_a_text_without_features(fitted):
    encoder = copy.deepcopy(fitted).train()
    encoder(encoder.preprocess(["", "头疼"]))["sentence_embedding"].square().sum().backward()
    for name, parameter in encoder.named_parameters():
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().sum() > 0, name


def test_a_prompt_is_left_out(fitted):
    model = _model(fitted, prompts={"query": "头疼: "})
    np.testing.assert_array_equal(model.encode_query(["发热"]), model.encode(["发热"]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_it_is_saved_and_loaded_in_its_dtype(fitted, dtype, tmp_path):
    model = _model(fitted).to(dtype)
    model.save_pretrained(str(tmp_path / "model"), create_model_card=False)
    loaded = SentenceTransformer(str(tmp_path / "model"), trust_remote_code=True, device="cpu")
    assert {parameter.dtype for parameter in loaded[0].parameters()} == {dtype}
    texts = [*make_texts(10, seed=5), *ODD]
    vectors, expected = (one.encode(texts, convert_to_tensor=True) for one in (loaded, model))
    assert torch.equal(vectors, expected)
    assert modules_digest(list(loaded)) == modules_digest(list(model))
    exact = _model(fitted).encode(texts, convert_to_tensor=True)
    assert torch.nn.functional.cosine_similarity(vectors.float(), exact).min() > 0.999


def test_another_dictionary_changes_the_identity(fitted):
    other = copy.deepcopy(fitted)
    other.features.names[0] = "另"
    assert modules_digest([other]) != modules_digest([fitted])


def test_it_answers_in_a_mar_beside_an_encoder_with_a_prompt(mar, fitted, queries, documents, tmp_path):
    folder = tmp_path / "mar"
    mar.save_pretrained(str(folder))
    before = mar.encode_queries(queries)
    add_query_encoder(folder, [fitted], "query-lookup")
    rung = MAR.from_pretrained(folder, query="query-lookup", device="cpu")
    assert rung.prompts["query"]
    np.testing.assert_allclose(rung.encode_queries(queries), _model(fitted).encode(queries), atol=1e-6)
    np.testing.assert_allclose(rung.encode_query(queries), _model(fitted).encode(queries), atol=1e-6)
    np.testing.assert_allclose(rung.encode_corpus(documents), mar.encode_corpus(documents), atol=1e-6)
    both = MAR.from_pretrained(folder, device="cpu")
    np.testing.assert_allclose(both.encode_queries(queries), before, atol=1e-6)
    np.testing.assert_allclose(
        both.encode(queries, task="query-lookup"), rung.encode_queries(queries), atol=1e-6
    )
    again = tmp_path / "again"
    both.save_pretrained(str(again))
    loaded = MAR.from_pretrained(again, query="query-lookup", routes="query", device="cpu")
    np.testing.assert_array_equal(loaded.encode_queries(queries), rung.encode_queries(queries))


def test_plain_sentence_transformers_loads_the_folder_without_it(mar, fitted, queries, tmp_path):
    folder = tmp_path / "mar"
    mar.save_pretrained(str(folder))
    add_query_encoder(folder, [fitted], "query-lookup")
    assert query_encoders(folder) == ["query", "query-lookup"]
    again = tmp_path / "again"
    MAR.from_pretrained(folder, device="cpu").save_pretrained(str(again))
    for saved in (folder, again):
        plain = SentenceTransformer(str(saved), device="cpu")
        assert set(plain[0].sub_modules) == {"query", "document"}
        np.testing.assert_allclose(plain.encode_query(queries), mar.encode_queries(queries), atol=1e-6)
    assert query_encoders(again) == ["query", "query-lookup"]


def test_it_may_be_the_only_query_encoder(mar, fitted, queries, documents, tmp_path):
    built = MAR.from_modules(
        [copy.deepcopy(fitted)], mar.route_modules("document")[:2], dim=DIM, device="cpu"
    )
    built.save_pretrained(str(tmp_path / "mar"))
    loaded = MAR.from_pretrained(tmp_path / "mar", device="cpu")
    np.testing.assert_array_equal(loaded.encode_queries(queries), built.encode_queries(queries))
    np.testing.assert_array_equal(loaded.encode_corpus(documents), built.encode_corpus(documents))
    plain = SentenceTransformer(str(tmp_path / "mar"), device="cpu", trust_remote_code=True)
    np.testing.assert_array_equal(plain.encode_query(queries), built.encode_queries(queries))


def test_damaged_or_mixed_files_are_one_error(fitted, tmp_path):
    fitted.save(str(tmp_path))
    names = json.loads((tmp_path / "features.json").read_text(encoding="utf-8"))
    for other in ([*names[:-1], "另"], names[:-1], {"a": 1}, 3):
        (tmp_path / "features.json").write_text(json.dumps(other), encoding="utf-8")
        with pytest.raises(MarError, match="is damaged"):
            LookupEncoder.load(str(tmp_path))
