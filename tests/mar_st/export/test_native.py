"""The encoder in C++ computes what torch computes with numbers rounded in the same way."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize
from torch import nn

from mar_st.errors import MarError
from mar_st.export import ExportSettings, export
from mar_st.export.native import pack
from mar_st.model.encoders import load_encoder
from mar_st.online import native as runtime
from mar_st.online.encoders import load_query_encoder
from mar_st.online.native import NativeRuntime
from mar_st.online.protocol import EncoderError
from tests.mar_st.conftest import ALPHABET, make_config, make_tokenizer
from tests.mar_st.export.conftest import FAMILIES, TEXTS, make_model, native

needs_kernels = pytest.mark.usefixtures("kernels")


class Rounded(nn.Module):
    """A linear layer in float64 whose inputs and weights are rounded in groups of 128."""

    def __init__(self, layer):
        super().__init__()
        self.inner = layer
        self.weight, self.bias = layer.weight, layer.bias

    @staticmethod
    def rounded(x):
        padding = -x.shape[-1] % 128
        grouped = nn.functional.pad(x, (0, padding)).unflatten(-1, (-1, 128))
        scales = grouped.abs().amax(-1, keepdim=True) / 127
        values = torch.round(grouped / scales.clamp_min(1e-30)) * scales
        return values.flatten(-2)[..., : x.shape[-1]].double()

    def forward(self, x):
        product = self.rounded(x.float()) @ self.rounded(self.weight.detach()).T
        return (product + (0 if self.bias is None else self.bias.double())).float()


def rounded_copy(model):
    model = copy.deepcopy(model)
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child) is nn.Linear:
                setattr(module, name, Rounded(child))
    return model


def vectors(computes, front, texts):
    packs = list(front.packs(texts))
    return np.concatenate([computes.run(pack.inputs)[: pack.count] for pack in packs])


def sized(model_type, length=300, **settings):
    """A model of other sizes."""
    torch.manual_seed(3)
    config = make_config(model_type)
    for name, value in {"max_position_embeddings": 400, **settings}.items():
        setattr(config, name, value)
    role = "document" if model_type == "qwen3" else "query"
    modules = load_encoder(
        (config, make_tokenizer(role)), role, pooling="lasttoken" if role == "document" else "cls"
    )
    modules[0].max_seq_length = length
    table = modules[0].model.get_input_embeddings().weight.data
    table.copy_(table.half())  # as it is exported
    for module in modules[0].modules():  # biases and norms that do something
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.normal_(module.bias, std=0.1)
        elif "Norm" in type(module).__name__ and getattr(module, "weight", None) is not None:
            nn.init.normal_(module.weight, mean=1, std=0.2)
    return SentenceTransformer(modules=[*modules, Normalize()], device="cpu").eval()


def assert_near(actual, expected):
    """A number on the edge between two roundings may fall to either side: one step in 127 of its group."""
    errors = np.abs(actual - expected).max(1)
    assert np.sort(errors)[len(errors) // 2] < 1e-6
    assert errors.max() < 1 / 127


@needs_kernels
@pytest.mark.parametrize(("model_type", "pooling"), FAMILIES)
def test_families_and_poolings_give_the_vectors_of_the_rounded_model(
    model_type, pooling, tmp_path, monkeypatch
):
    monkeypatch.setattr("mar_st.online.front.PACK_TOKENS", 40)  # several packs, several texts in each
    model = make_model(model_type, pooling, dense=16)
    expected = np.stack([rounded_copy(model).encode(text, task="query") for text in TEXTS])
    original = np.stack([model.encode(text, task="query") for text in TEXTS])
    exported = vectors(*native(model, tmp_path), TEXTS)
    assert_near(exported, expected)
    assert (
        np.abs(exported - original).max() > 2 * np.abs(exported - expected).max()
    )  # the rounding is what differs


@needs_kernels
@pytest.mark.parametrize(
    ("model_type", "settings"),
    [
        ("gte", {"hidden_size": 40, "num_attention_heads": 4, "intermediate_size": 100}),
        (
            "gte",
            {"hidden_size": 320, "num_attention_heads": 5, "intermediate_size": 272, "hidden_act": "silu"},
        ),
        (
            "bert",
            {"hidden_size": 144, "num_attention_heads": 8, "intermediate_size": 200, "hidden_act": "relu"},
        ),
        ("bert", {"hidden_act": "gelu_pytorch_tanh", "num_hidden_layers": 3}),
        ("modernbert", {"sliding_window": 4}),
        ("qwen3", {"head_dim": 24, "num_attention_heads": 6, "num_key_value_heads": 3}),
    ],
)
def test_sizes_and_settings_give_the_vectors_of_the_rounded_model(model_type, settings, tmp_path):
    model = sized(model_type, **settings)
    rng = np.random.default_rng(0)
    texts = ["".join(rng.choice(list(ALPHABET), size)) for size in (250, 1, 33, 5, 12, 11, 64)]
    expected = np.stack([rounded_copy(model).encode(text) for text in texts])
    assert_near(vectors(*native(model, tmp_path), texts), expected)


@needs_kernels
def test_modules_after_pooling_are_computed(tmp_path):
    modules = list(make_model("bert", "mean"))[:2]
    modules += [
        Dense(32, 24, activation_function=nn.GELU()),
        Dense(24, 50, activation_function=nn.Identity()),
    ]
    model = SentenceTransformer(modules=modules, device="cpu").eval()
    expected = rounded_copy(model).encode(TEXTS)
    exported = vectors(*native(model, tmp_path), TEXTS)
    assert exported.shape == (6, 50)
    np.testing.assert_allclose(exported, expected, atol=2e-2)
    assert np.abs(exported).max() > 0.3


@needs_kernels
@pytest.mark.parametrize("model_type", ["gte", "qwen3"])
def test_vectors_do_not_depend_on_the_other_texts(model_type, tmp_path):
    model = sized(model_type)
    computes, front = native(model, tmp_path, threads=1)
    texts = [*TEXTS, "发热" * 90, *TEXTS[::-1]]
    alone = np.concatenate([vectors(computes, front, [text]) for text in texts])
    np.testing.assert_array_equal(vectors(computes, front, texts), alone)
    for threads in (2, 5):
        many = NativeRuntime(tmp_path / "native-int8.json", threads)
        for _ in range(20):
            np.testing.assert_array_equal(vectors(many, front, texts), alone)


def test_weights_are_packed_for_the_kernel():
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(40, 150)).astype(np.float32)
    weight[3] = 0
    packed, scales = pack(weight)
    assert (packed.shape, packed.dtype, scales.shape) == ((2, 40, 32, 4), np.uint8, (2, 2, 32))
    for output in range(40):
        for i in range(150):
            value = int(packed[output // 32, i // 4, output % 32, i % 4]) - 128
            scale = scales[output // 32, i // 128, output % 32]
            assert abs(value * scale - weight[output, i]) <= scale * 0.5001
    assert (packed[1, :, 8:] == 128).all()
    assert (packed[:, 38:] == 128).all()  # 150 inputs are filled up to 160
    assert np.abs(packed.astype(int) - 128).max() == 127


@needs_kernels
def test_another_variant_is_used_where_native_cannot_run(gte_folder, tmp_path, monkeypatch, caplog):
    out = tmp_path / "out"
    listing = export(ExportSettings(model=str(gte_folder), out=out))
    assert set(listing.variants) == {"native-int8", "openvino-int8"}
    assert listing.variants["native-int8"].report["alone_cosine"] == 1
    assert listing.variants["native-int8"].report["cosine_min"] > 0.99
    runtime.kernels.cache_clear()
    monkeypatch.setattr(runtime, "REQUIRED_FLAGS", frozenset({"avx1024"}))
    try:
        with pytest.raises(EncoderError, match=r"this one has no avx1024\."):
            load_query_encoder(out, backend="native-int8")
        object.__setattr__(listing, "chosen", "native-int8")
        listing.write(out)
        assert load_query_encoder(out, threads=1).variant.runtime == "openvino"
        again = export(ExportSettings(model=str(gte_folder), out=tmp_path / "again"))
        assert set(again.variants) == {"openvino-int8"}
        assert "no avx1024" in again.refused["native-int8"]
        with pytest.raises(MarError, match=r"Nothing could be exported: native-int8: .* no avx1024"):
            export(ExportSettings(model=str(gte_folder), out=tmp_path / "none", format=["native-int8"]))
    finally:
        runtime.kernels.cache_clear()


@needs_kernels
def test_unsupported_models_are_refused(tmp_path):
    model = make_model("gte")
    model[0].model.config.model_type = "nix"
    with pytest.raises(MarError, match=r"computes gte, bert, .*; this is nix"):
        native(model, tmp_path)
    model = make_model("gte")
    model[0].model.rotary_emb.rope_type = "dynamic"
    with pytest.raises(MarError, match="depend on a text's length"):
        native(model, tmp_path)
    model = make_model("gte")
    model[0].model.layers[1].mlp.down_proj.weight.data[3, 2] = np.nan
    with pytest.raises(MarError, match="not finite"):
        native(model, tmp_path)
    modules = [*make_model("bert"), Dense(32, 8, activation_function=nn.Softplus())]
    with pytest.raises(MarError, match="no activation 'softplus' after pooling"):
        native(SentenceTransformer(modules=modules, device="cpu"), tmp_path)
