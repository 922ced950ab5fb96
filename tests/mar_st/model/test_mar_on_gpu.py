"""Both routes of a MAR on a GPU, in every dtype and by every way to get it there."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from mar_st import MAR
from tests.mar_st.gpu_helpers import WIDTHS, texts, write_sides

pytestmark = pytest.mark.gpu

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A saved MAR in float32."""
    place = tmp_path_factory.mktemp("mar")
    sides = write_sides(place, torch.float32)
    MAR.from_encoders(**{side: str(path) for side, path in sides.items()}, device="cpu").save_pretrained(
        str(place / "mar")
    )
    return place


@pytest.fixture(scope="module")
def expected(folder):
    """Vectors of both sides in float32 on the CPU."""
    model = SentenceTransformer(str(folder / "mar"), device="cpu", model_kwargs={"dtype": torch.float32})
    return model.encode_query(texts()), model.encode_document(texts())


def cosines(vectors, wanted):
    vectors = np.asarray(vectors, dtype=np.float32)
    assert vectors.shape == wanted.shape
    assert np.isfinite(vectors).all()
    norms = np.linalg.norm(vectors, axis=1) * np.linalg.norm(wanted, axis=1)
    return (vectors * wanted).sum(axis=1) / norms


def agree(model, expected, gpu, least):
    assert {parameter.device.type for parameter in model.parameters()} == {gpu.type}
    for vectors, wanted in zip(
        (model.encode_query(texts()), model.encode_document(texts())), expected, strict=True
    ):
        assert np.ptp(wanted, axis=0).max() > 0.02  # texts differ
        assert cosines(vectors, wanted).min() > least


@pytest.mark.parametrize("kind", [SentenceTransformer, MAR])
def test_vectors_match_the_cpu_in_float32(gpu, folder, expected, kind):
    load = MAR.from_pretrained if kind is MAR else SentenceTransformer
    agree(load(str(folder / "mar"), device=str(gpu)), expected, gpu, 1 - 1e-4)


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("way", ["method", "model_kwargs"])
@pytest.mark.parametrize("kind", [SentenceTransformer, MAR])
def test_vectors_match_the_cpu_in_half_precision(gpu, folder, expected, kind, way, name):
    load = MAR.from_pretrained if kind is MAR else SentenceTransformer
    path, device, dtype = str(folder / "mar"), str(gpu), DTYPES[name]
    if way == "model_kwargs":
        model = load(path, device=device, model_kwargs={"dtype": dtype})
    else:
        model = load(path, device=device)
        model = model.half() if name == "fp16" else model.to(torch.bfloat16)
    transformers = [p.dtype for n, p in model.named_parameters() if "embed" in n]
    assert set(transformers) == {dtype}
    agree(model, expected, gpu, 0.99)


@pytest.mark.parametrize("name", DTYPES)
def test_encoders_stored_in_half_precision_match_the_cpu(gpu, folder, expected, tmp_path, name):
    sides = write_sides(tmp_path, DTYPES[name])
    built = MAR.from_encoders(**{side: str(path) for side, path in sides.items()}, device=str(gpu))
    agree(built, expected, gpu, 0.99)
    built.save_pretrained(str(tmp_path / "mar"))
    loaded = SentenceTransformer(str(tmp_path / "mar"), device=str(gpu))
    agree(loaded, expected, gpu, 0.99)
    np.testing.assert_allclose(
        np.asarray(loaded.encode_document(texts()), dtype=np.float32),
        np.asarray(built.encode_document(texts()), dtype=np.float32),
        atol=1e-6,
    )


def test_the_query_route_alone_matches_the_cpu(gpu, folder, expected):
    model = MAR.from_pretrained(folder / "mar", routes="query", device=str(gpu))
    assert cosines(model.encode_queries(texts()), expected[0]).min() > 1 - 1e-4
    assert model.encode_queries(texts()).shape == (len(texts()), WIDTHS["query"])
