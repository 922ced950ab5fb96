"""An exported lookup encoder: its vectors, and folders that are broken."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mar_st.errors import MarError
from mar_st.lookup.features import Features
from mar_st.online.lookup import NumpyLookupEncoder
from mar_st.online.protocol import EncoderError
from tests.mar_st.online.conftest import FEATURES

TEXTS = ["头疼", "ABC 头头头", "", "无", "a" * 20]


def parts_of(folder):
    values = np.fromfile(folder / "lookup.bin", "<f4")
    return values[:5], values[5:9], values[14:].reshape(5, 4)


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


@pytest.mark.parametrize(("precision", "kind", "atol"), [("fp16", "<f2", 2e-3), ("int8", "i1", 2e-2)])
def test_a_smaller_table_gives_nearly_the_same_vectors(lookup_folder, precision, kind, atol):
    exact = NumpyLookupEncoder.open(lookup_folder.path).encode(TEXTS)
    weights, bias, table = parts_of(lookup_folder.path)
    scales = np.abs(table).max(axis=1) / 127 if precision == "int8" else np.ones(5)
    stored = np.rint(table / scales[:, None]) if precision == "int8" else table
    content = np.concatenate([weights, bias, scales]).astype("<f4").tobytes() + stored.astype(kind).tobytes()
    lookup_folder.replace("lookup.bin", content)
    lookup_folder.change(precision=precision)
    vectors = NumpyLookupEncoder.open(lookup_folder.path).encode(TEXTS)
    np.testing.assert_allclose(vectors, exact, atol=atol)
    assert np.abs(vectors - exact).max() > 0


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
        ("features", 5.0),
        ("dim", "4"),
        ("max_length", -1),
        ("lengths", [1]),
        ("lengths", [0, 2]),
        ("lengths", "12"),
        ("lengths", None),
        ("lengths", [1, True]),
        ("precision", "fp64"),
        ("precision", ["fp32"]),
        ("normalised", "yes"),
        ("prompts", {"query": []}),
        ("space", 7),
        ("similarity", 1),
        ("model__query", {"a": 1}),
        ("model", []),
        ("dim", ...),
    ],
)
def test_a_listing_with_a_wrong_setting_is_one_error(lookup_folder, field, value):
    lookup_folder.change(**{field: value})
    with pytest.raises(EncoderError, match=r"export\.json cannot be read \(.+\); export the model again"):
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


@pytest.mark.parametrize(
    ("change", "same"),
    [({"similarity": "dot", "prompts": {}}, True), ({"lengths": [1, 3]}, False), ({"max_length": 4}, False)],
)
def test_the_identity_changes_with_all_that_vectors_depend_on(lookup_folder, change, same):
    before = NumpyLookupEncoder.open(lookup_folder.path).identity
    lookup_folder.change(**change)
    assert (NumpyLookupEncoder.open(lookup_folder.path).identity == before) == same


def test_other_numbers_or_features_are_another_identity(lookup_folder):
    identities = {NumpyLookupEncoder.open(lookup_folder.path).identity}
    lookup_folder.replace("lookup.bin", np.ones(34, dtype="<f4").tobytes())
    identities.add(NumpyLookupEncoder.open(lookup_folder.path).identity)
    features = Features(reversed(FEATURES), lengths=(1, 2), max_length=8)
    lookup_folder.replace("features.json", features.to_json().encode())
    identities.add(NumpyLookupEncoder.open(lookup_folder.path).identity)
    assert len(identities) == 3
