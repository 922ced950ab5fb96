"""Tests of the kernels for linear layers: as accurate as torch, and the same in every run of a folder."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn

from mar_st.encode import EncodeSettings, Engine, encode_corpus
from mar_st.errors import MarError
from mar_st.kernels import amx, linear
from mar_st.kernels.linear import OneDNNLinear, best_kernel, has_onednn, use_kernel
from mar_st.kernels.processor import Processor, processor
from tests.conftest import write_jsonl
from tests.mar_st.encode.encoders import symmetric, texts

if TYPE_CHECKING:
    from pathlib import Path

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
def test_views_and_empty_inputs_are_computed() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(64, 24)
    packed = OneDNNLinear(layer.weight, layer.bias)
    x = torch.randn(3, 64, 5).transpose(1, 2)
    torch.testing.assert_close(packed(x), layer(x), atol=1e-5, rtol=0)
    assert packed(torch.empty(0, 64)).shape == (0, 24)


@needs_onednn
@pytest.mark.parametrize("kind", ["gte", "qwen3"])
def test_a_model_gives_the_same_vectors(kind: str) -> None:
    model = symmetric(kind)
    expected = Engine(model).encode(texts())
    assert use_kernel(model, "onednn") >= 8
    assert not any(type(module) is nn.Linear for module in model[0].modules())
    vectors = Engine(model, threads=2).encode(texts())
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    np.testing.assert_array_equal(Engine(model, threads=1).encode(texts()), vectors)


@needs_bfloat16
def test_a_model_in_bfloat16_gives_the_same_vectors() -> None:
    model = symmetric("gte")
    expected = Engine(model).encode(texts())
    plain = Engine(model.bfloat16()).encode(texts())
    assert use_kernel(model, "onednn") >= 8
    vectors = Engine(model).encode(texts())
    assert np.abs(vectors - expected).max() <= 1.5 * np.abs(plain - expected).max() < 0.1


@pytest.mark.parametrize(
    ("flags", "expected"), [({"avx512_bf16"}, "onednn"), ({"amx_bf16"}, "onednn"), ({"avx512f"}, "torch")]
)
def test_onednn_is_the_best_kernel_where_the_processor_has_bfloat16(
    flags: set[str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(amx, "kernel", object)  # of float32
    monkeypatch.setattr(linear, "processor", lambda: Processor("x", frozenset(flags)))
    monkeypatch.setattr(linear, "has_onednn", lambda dtype: dtype == torch.bfloat16)
    assert best_kernel(torch.bfloat16) == expected


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("dtype", "asked"), [("auto", [torch.float32]), ("bfloat16", [torch.bfloat16]), ("float32", [])]
)
def test_a_run_asks_for_the_kernel_of_its_dtype(
    dtype: Any, asked: list[torch.dtype], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested: list[torch.dtype] = []
    monkeypatch.setattr(linear, "best_kernel", lambda dtype: requested.append(dtype) or "torch")
    symmetric("gte").save_pretrained(str(tmp_path / "model"))
    corpus = write_jsonl(tmp_path / "c.jsonl", [{"_id": "a", "text": "头疼"}])
    encode_corpus(
        tmp_path / "model", corpus, tmp_path / "v", EncodeSettings(dtype=dtype), show_progress=False
    )
    assert requested == asked


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
    monkeypatch.setattr(amx, "kernel", lambda: None)
    monkeypatch.setattr(linear, "processor", lambda: here)
    monkeypatch.setattr(linear, "has_onednn", lambda *_: onednn)
    assert best_kernel() == expected


def test_the_matrix_unit_is_preferred(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amx, "kernel", object)
    assert best_kernel() == "amx"


def test_a_folder_keeps_its_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tmp_path / "model"
    symmetric("gte").save_pretrained(str(model))
    corpus = write_jsonl(tmp_path / "c.jsonl", [{"_id": str(i), "text": t} for i, t in enumerate(texts())])
    monkeypatch.setattr(linear, "best_kernel", lambda _: "torch")
    first = encode_corpus(model, corpus, tmp_path / "v", show_progress=False)[:]

    monkeypatch.setattr(linear, "best_kernel", lambda _: "onednn")
    with corpus.open("a", encoding="utf-8") as out:
        out.write(json.dumps({"_id": "new", "text": "头疼"}) + "\n")
    vectors = encode_corpus(model, corpus, tmp_path / "v", show_progress=False)

    assert json.loads((tmp_path / "v" / "encode.json").read_text())["settings"]["kernel"] == "torch"
    np.testing.assert_allclose(vectors[: len(first)], first, atol=1e-6)
    assert len(vectors) == len(first) + 1


def test_an_unavailable_kernel_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "has_onednn", lambda *_: False)
    with pytest.raises(MarError, match="torch with oneDNN"):
        use_kernel(symmetric("gte"), "onednn")


def test_the_processor_has_a_maker_exactly_if_it_has_flags() -> None:
    here = processor()
    assert (here.maker == "") == (here.flags == frozenset())
