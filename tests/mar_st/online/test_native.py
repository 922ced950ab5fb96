"""Tests of the runtime `native`: inputs, weights and processors that do not fit are one error each."""

from __future__ import annotations

import numpy as np
import pytest

from mar_st.kernels.build import CompileError
from mar_st.online import native as runtime
from mar_st.online.native import NativeRuntime
from mar_st.online.protocol import EncoderError
from tests.mar_st.export.conftest import kernels, make_model, native  # noqa: F401 -- fixture

needs_kernels = pytest.mark.usefixtures("kernels")


@needs_kernels
def test_a_pack_without_tokens_gives_finite_vectors(tmp_path):
    computes, front = native(make_model("gte", "mean"), tmp_path)
    inputs = next(front.packs(["头疼"])).inputs
    inputs["segments"][:] = -1
    inputs["pool"][:] = 0
    assert np.isfinite(computes.run(inputs)).all()
    inputs["positions"][0] = 10**6
    with pytest.raises(EncoderError, match="more positions than the 24 that were exported"):
        computes.run(inputs)


@needs_kernels
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_padding_and_what_it_holds_change_nothing(tmp_path, pooling):
    computes, front = native(make_model("gte", pooling), tmp_path)
    inputs = next(front.packs(["头疼", "感冒发热"])).inputs
    tokens = int((inputs["segments"] >= 0).sum())
    assert tokens < len(inputs["segments"])
    expected = computes.run(inputs).copy()
    assert np.abs(expected[0] - expected[1]).max() > 1e-3
    inputs["embeddings"][tokens:] = np.nan
    inputs["positions"][tokens:] = 10**6
    np.testing.assert_array_equal(computes.run(inputs), expected)
    cut = {name: inputs[name][:tokens] for name in ("embeddings", "positions", "segments")}
    np.testing.assert_array_equal(computes.run({**cut, "pool": inputs["pool"]}), expected)


@needs_kernels
@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("embeddings", lambda rows: np.tile(rows, 2)[:, :33], r"shape \(16, 33\); the encoder takes 4 of 32"),
        ("embeddings", lambda rows: rows[:2], r"shape \(2, 32\); the encoder takes 4 of 32"),
        ("positions", lambda rows: rows[:2], "A text has more positions than the 24"),
        ("positions", lambda rows: rows - 1, "A text has more positions than the 24"),
        ("pool", lambda rows: rows + 4, "Pooling asks for more than the 4 tokens"),
        ("pool", lambda rows: rows - 1, "Pooling asks for more than the 4 tokens"),
    ],
)
def test_inputs_that_would_lead_out_of_memory_are_refused(tmp_path, name, change, message):
    computes, front = native(make_model("gte"), tmp_path)
    inputs = next(front.packs(["头疼"])).inputs
    computes.run(inputs)
    inputs[name] = np.ascontiguousarray(change(inputs[name]))
    with pytest.raises(EncoderError, match=message):
        computes.run(inputs)


@needs_kernels
def test_weights_of_fewer_tokens_than_there_are_are_refused(tmp_path):
    computes, front = native(make_model("gte", "mean"), tmp_path)
    inputs = next(front.packs(["头疼"])).inputs
    inputs["pool"] = inputs["pool"][:, :3]
    with pytest.raises(EncoderError, match="Pooling asks for more than the 4 tokens"):
        computes.run(inputs)


def _cut(path):
    path.write_bytes(path.read_bytes()[:-64])


@needs_kernels
@pytest.mark.parametrize(
    ("suffix", "damage", "message"),
    [
        (".npy", lambda path: np.save(path, np.zeros(4096, np.float32)), "is not an array of bytes"),
        (".npy", lambda path: np.save(path, np.zeros((64, 64), np.uint8)), "is not an array of bytes"),
        (".npy", lambda path: np.save(path, np.zeros(64, np.uint8)), "cannot be at byte"),
        (".npy", _cut, "is damaged"),
        (".npy", lambda path: path.unlink(), "No such file"),
        (".json", lambda path: path.write_text("{"), "Expecting property name"),
        (".json", lambda path: path.write_text("[]"), "the description is broken"),
    ],
)
def test_files_that_are_damaged_are_one_error(tmp_path, suffix, damage, message):
    native(make_model("gte"), tmp_path)
    damage((tmp_path / "native-int8.json").with_suffix(suffix))
    with pytest.raises(EncoderError, match=rf"native-int8\.json cannot be used: .*{message}") as error:
        NativeRuntime(tmp_path / "native-int8.json", 1)
    assert str(error.value).endswith("Export the encoder again.")


@pytest.fixture
def not_loaded():
    """Load the kernels again in the test, and after it."""
    runtime.kernels.cache_clear()
    yield
    runtime.kernels.cache_clear()


@pytest.mark.usefixtures("not_loaded")
def test_a_processor_without_the_instructions_is_told_what_to_use(tmp_path, monkeypatch):
    monkeypatch.setattr(runtime, "REQUIRED_FLAGS", frozenset({"avx1024", "amx9"}))
    with pytest.raises(EncoderError, match=r"has no amx9, avx1024\. Use an OpenVINO or ONNX variant"):
        NativeRuntime(tmp_path / "native-int8.json", 1)


@pytest.mark.usefixtures("not_loaded")
def test_a_missing_compiler_is_one_error(tmp_path, monkeypatch):
    def fail(source, flags):
        raise CompileError(f"no c++ for {source.name}")

    monkeypatch.setattr(runtime, "REQUIRED_FLAGS", frozenset())
    monkeypatch.setattr(runtime, "library", fail)
    with pytest.raises(EncoderError, match=r"needs a C\+\+ compiler: no c\+\+ for encoder\.cpp"):
        NativeRuntime(tmp_path / "native-int8.json", 1)
