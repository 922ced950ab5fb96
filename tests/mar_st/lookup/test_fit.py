from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize

from mar_st.errors import MarError
from mar_st.lookup.fit import design, dictionary, fit_lookup, solve
from mar_st.losses.alignment import AlignmentLoss
from tests.mar_st.lookup.conftest import make_texts, teach


def _encode(encoder, texts):
    return SentenceTransformer(modules=[encoder, Normalize()], device="cpu").encode(texts)


def test_unseen_texts_get_nearly_the_vectors_of_the_teacher(fitted):
    texts = make_texts(100, seed=9)
    cosines = (
        _encode(fit_lookup(make_texts(400), teach(make_texts(400)), scale=1), texts) * teach(texts)
    ).sum(1)
    assert cosines.mean() > 0.9
    mean = teach(make_texts(400)).mean(axis=0)
    assert cosines.mean() > (teach(texts) @ (mean / np.linalg.norm(mean))).mean() + 0.1


def test_conjugate_gradients_find_the_ridge_solution(texts, vectors):
    features, counts = dictionary(texts, lengths=(1, 2), min_count=2, max_features=80, max_length=64)
    matrix = design(features, texts, np.log1p(len(texts) / counts).astype(np.float32))
    np.testing.assert_allclose(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel(), 1, atol=1e-5)
    dense = matrix.toarray().astype(np.float64)
    expected = np.linalg.solve(dense.T @ dense + 0.3 * np.eye(len(features)), dense.T @ vectors)
    solution = solve(matrix, vectors, 0.3)
    assert np.linalg.norm(solution - expected) < 0.02 * np.linalg.norm(expected)
    near = solve(matrix, vectors, 0.3, start=expected.astype(np.float32))
    assert np.linalg.norm(near - expected) < 1e-3 * np.linalg.norm(expected)


def test_fitting_is_deterministic_and_the_scale_multiplies(texts, vectors, fitted):
    again = fit_lookup(texts, torch.from_numpy(vectors))
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), fitted.parameters(), strict=True))
    assert again.features.names == fitted.features.names
    single = fit_lookup(texts, vectors, scale=1)
    triple = fit_lookup(texts, vectors, scale=3)
    torch.testing.assert_close(3 * single.embedding.weight, triple.embedding.weight)
    torch.testing.assert_close(single.bias, triple.bias)


def test_the_longer_the_mean_of_the_teacher_the_larger_the_scale(texts, vectors):
    centred = vectors - vectors.mean(axis=0)
    shift = np.eye(vectors.shape[1], dtype=np.float32)[0] * np.sqrt(np.square(centred).sum(axis=1).mean())
    plain, twice, far = (
        fit_lookup(texts, centred + length * shift, ridge=0.3).embedding.weight for length in (0, 2**0.5, 100)
    )
    torch.testing.assert_close(twice, 2 * plain, rtol=0.05, atol=0.01 * float(plain.abs().max()))
    torch.testing.assert_close(far, 4 * plain, rtol=0.05, atol=0.01 * float(plain.abs().max()))


def test_the_ridge_is_chosen_on_held_out_texts(vectors, texts, fitted):
    noise = np.random.default_rng(0).standard_normal(vectors.shape).astype(np.float32)
    of_noise = fit_lookup(texts, noise).embedding.weight.norm()
    assert of_noise < fit_lookup(texts, noise, ridge=0.03).embedding.weight.norm() / 2


def test_the_dictionary_keeps_only_frequent_and_storable_features():
    texts = ["头疼\ud83d"] * 2 + ["头热", "头"]
    features, counts = dictionary(texts, lengths=(1, 2), min_count=2, max_features=10, max_length=8)
    assert dict(zip(features.names, counts, strict=True)) == {"头": 4, "疼": 2, "头疼": 2}
    cut, _ = dictionary(texts, lengths=(1, 2), min_count=1, max_features=1, max_length=8)
    assert cut.names == ["头"]


def test_alignment_trains_it_further(texts, vectors):
    encoder = fit_lookup(texts, vectors, scale=1, ridge=3.0)
    model = SentenceTransformer(modules=[copy.deepcopy(encoder), Normalize()], device="cpu")
    loss = AlignmentLoss(model, mini_batch_size=64)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    values = []
    for _ in range(5):
        optimiser.zero_grad()
        value = loss([model.preprocess(texts[:200])], torch.from_numpy(vectors[:200]))
        value.backward()
        optimiser.step()
        values.append(value.item())
    assert values[-1] < values[0] - 0.05


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vectors": np.ones((3, 4))}, "vector per text"),
        ({"vectors": np.full((400, 4), np.nan)}, "finite vector"),
        ({"texts": ["头疼"] * 400}, "too few to choose the ridge penalty"),
    ],
)
def test_invalid_inputs_are_refused(texts, vectors, change, message):
    with pytest.raises(MarError, match=message):
        fit_lookup(**{"texts": texts, "vectors": vectors, **change})
