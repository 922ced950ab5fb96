"""Tests of `mar export`: its files, the chosen variant and its errors."""

from __future__ import annotations

import numpy as np
import pytest
from typer.testing import CliRunner

from mar_st.cli import app
from mar_st.errors import MarError
from mar_st.export import ExportSettings, export
from mar_st.export.exporting import _chosen
from mar_st.online.encoders import load_query_encoder
from mar_st.online.listing import ExportVariant
from tests.mar_st.export.conftest import TEXTS, make_model, with_pairs


def run(model, out, **options):
    return export(ExportSettings(model=str(model), out=out, **options))


@pytest.mark.parametrize(
    ("fp32", "int8", "chosen"),
    [
        ((5.0, 1.0, True), (2.0, 0.999, True), "openvino-int8"),
        ((2.0, 1.0, True), (5.0, 0.999, True), "openvino-fp32"),
        ((5.0, 1.0, True), (2.0, 0.9, False), "openvino-fp32"),  # the faster one loses too much
        ((5.0, 0.9, False), (2.0, 0.8, False), "openvino-fp32"),  # neither: the nearest
    ],
)
def test_the_fastest_within_the_limits_is_chosen(fp32, int8, chosen):
    variants = {}
    for precision, (milliseconds, cosine, within) in (("fp32", fp32), ("int8", int8)):
        report = {"p50_ms": milliseconds, "cosine_mean": cosine, "within_limits": within}
        one = ExportVariant("openvino", precision, "graph", [], report)
        variants[one.name] = one
    assert _chosen(variants) == chosen


def test_all_precisions_are_exported_and_loaded(exported, gte_folder):
    out, listing = exported
    assert set(listing.variants) == {"openvino-fp32", "openvino-int8"}
    original = load_query_encoder(gte_folder)
    expected = original.encode(TEXTS)
    for name, least in (("openvino-fp32", 0.99999), ("openvino-int8", 0.98)):
        encoder = load_query_encoder(out, backend=name, threads=1)
        assert ((encoder.encode(TEXTS) * expected).sum(axis=1) > least).all()
        assert listing.variants[name].report["cosine_min"] > least
    assert encoder.origin == original.identity
    assert encoder.space == original.space


@pytest.mark.thorough
def test_onnx_gives_the_vectors_of_the_model(gte_folder, tmp_path):
    listing = run(gte_folder, tmp_path / "out", format=["onnx-fp32", "onnx-int8"])
    assert set(listing.variants) == {"onnx-fp32", "onnx-int8"}
    expected = load_query_encoder(gte_folder).encode(TEXTS)
    vectors = load_query_encoder(tmp_path / "out", backend="onnx-fp32", threads=1).encode(TEXTS)
    np.testing.assert_allclose(vectors, expected, atol=1e-5)


def test_what_cannot_be_exported_is_refused(exported, gte_folder, tmp_path):
    out, _ = exported
    before = (out / "export.json").read_bytes()
    with pytest.raises(MarError, match="exists"):
        run(gte_folder, out)
    assert (out / "export.json").read_bytes() == before
    bad = CliRunner().invoke(app, ["export", str(gte_folder), str(tmp_path / "out"), "--format", "onnx-int3"])
    assert bad.exit_code == 2
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_an_encoder_with_vectors_of_token_pairs_is_exported(tmp_path):
    with_pairs(make_model(pooling="mean")).save(str(tmp_path / "model"))
    out = tmp_path / "out"
    listing = run(tmp_path / "model", out, format=["openvino-fp32", "openvino-int8"])
    assert listing.bigrams
    original = load_query_encoder(tmp_path / "model").encode(TEXTS)
    exported = load_query_encoder(out, backend="openvino-fp32", threads=1).encode(TEXTS)
    np.testing.assert_allclose(exported, original, atol=1e-5)
    assert listing.variants["openvino-int8"].report["cosine_min"] > 0.97


@pytest.mark.usefixtures("kernels")
def test_the_command_writes_native_kernels_and_prints_a_table(gte_folder, tmp_path):
    arguments = ["export", str(gte_folder), str(tmp_path / "out"), "--format", "native-int8"]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert "* native-int8" in result.stdout
    assert load_query_encoder(tmp_path / "out").encode(["头疼"]).shape == (1, 32)
