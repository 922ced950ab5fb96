"""Lookup encoders of exports and of saved models: their vectors, and folders that are broken."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize

from mar_st.errors import MarError
from mar_st.lookup.features import Features
from mar_st.online import encoder_name, encoder_origin, load_query_encoder
from mar_st.online.lookup import NumpyLookupEncoder
from mar_st.online.protocol import EncoderError
from mar_st.online.torch_encoder import TorchEncoder
from tests.mar_st.lookup.conftest import family, fitted, texts, vectors  # noqa: F401 -- fixtures
from tests.mar_st.online.conftest import FEATURES

TEXTS = ["头疼", "ABC 头头头", "", "无", "a" * 20]


def parts_of(folder):
    content = (folder / "lookup.bin").read_bytes()
    values = np.frombuffer(content, "<f4", 14)
    table = np.frombuffer(content, np.int8, offset=values.nbytes).reshape(5, 4) * values[9:, None]
    return values[:5], values[5:9], table


def test_a_vector_is_the_bias_and_the_weighted_mean_of_its_features(lookup_folder):
    lookup_folder.change(normalised=False)
    encoder = NumpyLookupEncoder.open(lookup_folder.path)
    weights, bias, table = parts_of(lookup_folder.path)
    shares = weights[[0, 1, 2]] * np.sqrt([3, 1, 1])  # 头 three times, 疼 and 头疼 once
    expected = shares / np.linalg.norm(shares) @ table[:3] + bias
    np.testing.assert_allclose(encoder.encode(["头头 头疼"]), [expected], rtol=1e-5)
    np.testing.assert_array_equal(encoder.encode(["", "无"]), [bias, bias])


def test_normalised_vectors_have_length_one_and_the_same_direction(lookup_folder):
    unit = NumpyLookupEncoder.open(lookup_folder.path).encode(TEXTS)
    lookup_folder.change(normalised=False)
    plain = NumpyLookupEncoder.open(lookup_folder.path).encode(TEXTS)
    assert unit.dtype == np.float32
    assert np.abs(np.linalg.norm(plain, axis=1) - 1).min() > 1e-3
    np.testing.assert_allclose(unit, plain / np.linalg.norm(plain, axis=1, keepdims=True), rtol=1e-5)


def test_texts_are_normalised_and_cut_to_the_maximum_length(lookup_folder):
    encoder = NumpyLookupEncoder.open(lookup_folder.path)
    np.testing.assert_array_equal(encoder.encode(["  ＡＢＣ\t头 "]), encoder.encode(["abc 头"]))
    text = "无" * 7 + "头"
    np.testing.assert_array_equal(encoder.encode([text + "疼" * 9]), encoder.encode([text]))
    assert encoder.count_tokens([text + "疼" * 9, "  a  b ", ""]) == [17, 3, 0]
    assert encoder.encode([]).shape == (0, 4)


def test_a_prompt_must_exist_but_changes_nothing(lookup_folder):
    encoder = NumpyLookupEncoder.open(lookup_folder.path)
    np.testing.assert_array_equal(encoder.encode(["头疼"], "other"), encoder.encode(["头疼"]))
    assert encoder.count_tokens(["头疼"], "other") == [2]
    for call in (encoder.encode, encoder.count_tokens):
        with pytest.raises(EncoderError, match="no prompt 'nix'; the model has query, other"):
            call(["头疼"], "nix")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("features", 0),
        ("dim", "x"),
        ("max_length", -1),
        ("lengths", [1]),
        ("lengths", [0, 2]),
        ("precision", "fp64"),
        ("normalised", "perhaps"),
        ("prompts", {"query": []}),
        ("model", []),
        ("dim", ...),
    ],
)
def test_a_listing_with_a_wrong_setting_is_one_error(lookup_folder, field, value):
    lookup_folder.change(**{field: value})
    with pytest.raises(EncoderError, match=r"export\.json: .+ Export the model again"):
        NumpyLookupEncoder.open(lookup_folder.path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("lookup.bin", b""),
        ("lookup.bin", bytes(4 * 34 - 1)),
        ("lookup.bin", bytes(4 * 34 + 4)),
        ("features.json", b""),
        ("features.json", b"\xff\xfe"),
        ("features.json", b'["\\ud800", "b", "c", "d", "e"]'),
        ("features.json", b"5"),
        ("features.json", b"[1, 2, 3, 4, 5]"),
        ("features.json", json.dumps(FEATURES[:4]).encode()),
        ("features.json", json.dumps([*FEATURES[:4], FEATURES[0]]).encode()),
        ("features.json", b"[" * 100_000),
    ],
)
def test_files_that_do_not_belong_together_are_refused(lookup_folder, name, content):
    lookup_folder.replace(name, content)
    with pytest.raises(MarError) as error:
        NumpyLookupEncoder.open(lookup_folder.path)
    assert "\n" not in str(error.value)


def test_the_identity_changes_with_all_that_vectors_depend_on(lookup_folder):
    def identity():
        return NumpyLookupEncoder.open(lookup_folder.path).identity

    identities = [identity()]
    lookup_folder.change(similarity="dot", prompts={})
    assert identity() == identities[0]
    lookup_folder.change(max_length=4)
    identities.append(identity())
    lookup_folder.change(lengths=[1, 3])
    identities.append(identity())
    lookup_folder.replace("lookup.bin", bytes(4 * 14 + 20))
    identities.append(identity())
    features = Features(FEATURES[::-1], lengths=(1, 2), max_length=8)
    lookup_folder.replace("features.json", features.to_json().encode())
    identities.append(identity())
    assert len(set(identities)) == 5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_numpy_agrees_with_the_module_of_a_saved_model(fitted, tmp_path, dtype, texts):  # noqa: F811
    model = SentenceTransformer(modules=[copy.deepcopy(fitted).to(dtype), Normalize()], device="cpu")
    model.save_pretrained(str(tmp_path))
    loaded, module = load_query_encoder(tmp_path), TorchEncoder.open(str(tmp_path), device="cpu")
    assert isinstance(loaded, NumpyLookupEncoder)
    tolerance = 1e-5 if dtype == torch.float32 else 5e-3
    np.testing.assert_allclose(loaded.encode(texts), module.encode(texts), atol=tolerance)
    assert encoder_origin(loaded) == encoder_origin(module) == module.identity


def test_an_encoder_of_a_family_needs_no_torch(family):  # noqa: F811
    folder = family / "mar"
    loaded = load_query_encoder(folder, query="query-lookup")
    module = load_query_encoder(folder, query="query-lookup", backend="torch")
    assert encoder_name(loaded) == encoder_name(module) == "query-lookup"
    for name in ("dim", "space", "normalised", "max_length", "prompts"):
        assert getattr(loaded, name) == getattr(module, name)
    code = (
        "import sys; from mar_st.online import load_query_encoder; "
        f"load_query_encoder({str(folder)!r}, query='query-lookup').encode(['头疼']); "
        "print('torch' in sys.modules)"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert printed.stdout.split() == ["False"]


def test_damaged_models_are_refused(family, tmp_path):  # noqa: F811
    folder = tmp_path / "mar"
    shutil.copytree(family / "mar", folder)
    (part,) = folder.glob("query-lookup_0_*")
    weights = part / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-7])
    with pytest.raises(EncoderError, match="copy the encoder again"):
        load_query_encoder(folder, query="query-lookup")
    weights.write_bytes(content)
    (part / "features.json").write_text('["另"]', encoding="utf-8")
    with pytest.raises(MarError, match="come from different encoders"):
        load_query_encoder(folder, query="query-lookup")
