"""Linear layers on the matrix unit are as accurate as float32 needs; a machine without it does without."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from mar_st.encode import Engine
from mar_st.errors import MarError
from mar_st.kernels import amx
from mar_st.kernels.amx import PackedLinear, kernel
from mar_st.kernels.linear import use_kernel
from mar_st.kernels.processor import Processor
from tests.mar_st.encode.encoders import symmetric, texts

if TYPE_CHECKING:
    from pathlib import Path

    from mar_st import MAR

needs_unit = pytest.mark.skipif(kernel() is None, reason="this machine has no AMX, or no C++ compiler")


@needs_unit
@pytest.mark.parametrize(
    ("rows", "inner", "outer"), [(1, 32, 32), (37, 96, 64), (300, 1056, 32), (257, 2080, 96)]
)
@pytest.mark.parametrize("with_bias", [True, False])
def test_products_are_fifty_times_as_exact_as_in_bfloat16(
    rows: int, inner: int, outer: int, with_bias: bool
) -> None:
    torch.manual_seed(0)
    x, w = torch.randn(rows, inner), torch.randn(outer, inner) / inner**0.5
    bias = torch.randn(outer) if with_bias else None

    output = PackedLinear(w, bias, kernel())(x)

    exact = x.double() @ w.double().T + (bias.double() if bias is not None else 0)
    assert (output - exact).abs().max() < 6e-5
    half = (x.bfloat16() @ w.bfloat16().T).double() + (bias.double() if bias is not None else 0)
    assert (output - exact).abs().max() < (half - exact).abs().max() / 50


@needs_unit
@pytest.mark.parametrize("kind", ["gte", "qwen3"])
def test_a_model_gives_the_same_vectors(kind: str) -> None:
    model = symmetric(kind)
    expected = Engine(model).encode(texts())
    use_kernel(model, "amx")
    vectors = Engine(model, threads=2).encode(texts())
    np.testing.assert_allclose(vectors, expected, atol=2e-5)
    assert (vectors != expected).any()
    np.testing.assert_array_equal(Engine(model, threads=1).encode(texts()), vectors)


@pytest.mark.parametrize("what", ["flags", "compiler", "build", "result"])
def test_without_the_unit_torch_computes(
    what: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mar: MAR
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # nothing is compiled yet
    if what != "flags" and kernel() is None:
        pytest.skip("this machine has no AMX, or no C++ compiler")
    if what == "flags":
        monkeypatch.setattr(amx, "processor", Processor)
    elif what == "compiler":
        monkeypatch.setattr(shutil, "which", lambda _: None)
    elif what == "build":
        monkeypatch.setattr(shutil, "which", lambda _: shutil.__file__)
    else:
        monkeypatch.setattr(amx, "_computes", lambda _: False)
    kernel.cache_clear()
    try:
        assert kernel() is None
        with pytest.raises(MarError, match="AMX or a C\\+\\+ compiler"):
            use_kernel(mar, "amx")
    finally:
        monkeypatch.undo()
        kernel.cache_clear()
