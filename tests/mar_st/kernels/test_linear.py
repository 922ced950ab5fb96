"""Tests of the kernels for linear layers: as accurate as torch, and the same in every run of a folder."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from mar_st.encode.engine import Engine
from mar_st.errors import MarError
from mar_st.kernels import linear
from mar_st.kernels.build import Processor
from mar_st.kernels.linear import OneDNNLinear, best_kernel, has_onednn, use_kernel
from tests.mar_st.encode.encoders import symmetric, texts

needs_onednn = pytest.mark.skipif(not has_onednn(), reason="this torch has no oneDNN")
needs_bfloat16 = pytest.mark.skipif(
    not has_onednn(torch.bfloat16), reason="oneDNN has no bfloat16 on this processor"
)

AVX512 = frozenset({"avx512f", "avx512bw"})


@needs_onednn
@pytest.mark.parametrize(("rows", "inner", "outer"), [(1, 32, 32), (37, 96, 20), (600, 1056, 33)])
@pytest.mark.parametrize("with_bias", [True, False])
def test_products_are_float32(rows: int, inner: int, outer: int, with_bias: bool) -> None:
    torch.manual_seed(0)
    x, w = torch.randn(rows, inner), torch.randn(outer, inner) / inner**0.5
    bias = torch.randn(outer) if with_bias else None
    exact = x.double() @ w.double().T + (bias.double() if bias is not None else 0)
    half = (x.bfloat16() @ w.bfloat16().T).double() + (bias.double() if bias is not None else 0)

    output = OneDNNLinear(w, bias)(x)

    assert (output - exact).abs().max() < 1e-5
    assert (half - exact).abs().max() > 1e-3  # so the bound tells float32 from less


@needs_bfloat16
def test_products_are_bfloat16() -> None:
    torch.manual_seed(0)
    x, layer = torch.randn(37, 96).bfloat16(), nn.Linear(96, 20).bfloat16()
    output, plain = OneDNNLinear(layer.weight, layer.bias)(x), layer(x)
    assert output.dtype == torch.bfloat16
    exact = x.double() @ layer.weight.double().T + layer.bias.double()
    assert (output - exact).abs().max() <= 1.5 * (plain - exact).abs().max()


@needs_onednn
@pytest.mark.parametrize("kind", ["gte", "qwen3"])
def test_a_model_gives_the_same_vectors(kind: str) -> None:
    model = symmetric(kind)
    expected = Engine(model).encode(texts())
    use_kernel(model, "onednn")
    assert not any(type(module) is nn.Linear for module in model[0].modules())
    vectors = Engine(model, threads=2).encode(texts())
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    np.testing.assert_array_equal(Engine(model, threads=1).encode(texts()), vectors)


@needs_bfloat16
def test_a_model_in_bfloat16_gives_the_same_vectors() -> None:
    model = symmetric("gte")
    expected = Engine(model).encode(texts())
    plain = Engine(model.bfloat16()).encode(texts())
    use_kernel(model, "onednn")
    vectors = Engine(model).encode(texts())
    assert np.abs(vectors - expected).max() <= 1.5 * np.abs(plain - expected).max() < 0.1


@pytest.mark.parametrize(
    ("flags", "expected"), [({"avx512_bf16"}, "onednn"), ({"amx_bf16"}, "onednn"), ({"avx512f"}, "torch")]
)
def test_onednn_is_the_best_kernel_where_the_processor_has_bfloat16(
    flags: set[str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear, "processor", lambda: Processor("x", frozenset(flags)))
    monkeypatch.setattr(linear, "has_onednn", lambda dtype: dtype == torch.bfloat16)
    assert best_kernel(torch.bfloat16) == expected


@pytest.mark.parametrize(
    ("here", "onednn", "expected"),
    [
        (Processor("GenuineIntel", AVX512), True, "torch"),
        (Processor("AuthenticAMD", AVX512), True, "onednn"),
        (Processor("AuthenticAMD", AVX512), False, "torch"),
        (Processor("AuthenticAMD", frozenset({"avx2"})), True, "torch"),
        (Processor(), True, "torch"),
    ],
)
def test_onednn_is_the_best_kernel_only_on_amd_with_avx512(
    here: Processor, onednn: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear, "processor", lambda: here)
    monkeypatch.setattr(linear, "has_onednn", lambda *_: onednn)
    assert best_kernel() == expected


def test_an_unavailable_kernel_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "has_onednn", lambda *_: False)
    with pytest.raises(MarError, match="torch with oneDNN"):
        use_kernel(symmetric("gte"), "onednn")
