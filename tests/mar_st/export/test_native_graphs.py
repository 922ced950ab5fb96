"""The encoder in C++ computes what torch computes with numbers rounded in the same way."""

from __future__ import annotations

import copy
import subprocess
import sys

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize
from sentence_transformers.sentence_transformer.modules import LayerNorm
from torch import nn

from mar_st.export import ExportError, export
from mar_st.export.graph import PackedEncoder, parts_of
from mar_st.export.native_graphs import NativeGraphs, pack
from mar_st.export.source import Source, write_front
from mar_st.model.encoders import load_encoder
from mar_st.online import EncoderError, load_query_encoder
from mar_st.online import native_runtime as runtime
from mar_st.online.front import Front
from mar_st.online.native_description import Description
from mar_st.online.native_runtime import NativeRuntime
from mar_st.online.torch_encoder import TorchEncoder
from tests.mar_st.conftest import ALPHABET, make_config, make_tokenizer
from tests.mar_st.export.conftest import FAMILIES, TEXTS, make_model


def _reason():
    try:
        runtime.kernels()
    except EncoderError as error:
        return str(error)
    return ""


needs_kernels = pytest.mark.skipif(bool(_reason()), reason=_reason() or "-")


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
        found = torch.round(grouped / scales.clamp_min(1e-30)) * scales
        return found.flatten(-2)[..., : x.shape[-1]].double()

    def forward(self, x):
        found = self.rounded(x.float()) @ self.rounded(self.weight.detach()).T
        return (found + (0 if self.bias is None else self.bias.double())).float()


def rounded_copy(model):
    model = copy.deepcopy(model)
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child) is nn.Linear:
                setattr(module, name, Rounded(child))
    return model


def native(model, folder, threads=2):
    """A model in C++, and what makes its inputs."""
    source = Source(TorchEncoder(model), parts_of(list(model)), "tiny")
    listing, exact = write_front(source, folder, exact=True)
    graph = PackedEncoder(source.parts).eval()
    variant = NativeGraphs(graph, listing.max_length).write("int8", folder, exact, [])
    return NativeRuntime(folder / variant.graph, variant.options, threads), Front(folder, listing, exact)


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
    for module in modules[0].modules():  # biases and norms that do something
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.normal_(module.bias, std=0.1)
        elif "Norm" in type(module).__name__ and getattr(module, "weight", None) is not None:
            nn.init.normal_(module.weight, mean=1, std=0.2)
    return SentenceTransformer(modules=[*modules, Normalize()], device="cpu").eval()


def assert_near(found, expected):
    """A number on the edge between two roundings may fall to either side: one step in 127 of its group."""
    errors = np.abs(found - expected).max(1)
    assert np.sort(errors)[len(errors) // 2] < 1e-6
    assert errors.max() < 6e-3


@needs_kernels
@pytest.mark.parametrize(("model_type", "pooling"), FAMILIES)
def test_families_and_poolings(model_type, pooling, tmp_path, monkeypatch):
    monkeypatch.setattr("mar_st.online.front.PACK_TOKENS", 40)  # several packs, several texts in each
    model = make_model(model_type, pooling, dense=16)
    expected = np.stack([rounded_copy(model).encode(text, task="query") for text in TEXTS])
    original = np.stack([model.encode(text, task="query") for text in TEXTS])
    found = vectors(*native(model, tmp_path), TEXTS)
    assert_near(found, expected)
    assert np.abs(found - original).max() > 2 * np.abs(found - expected).max()  # the rounding is what differs


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
def test_sizes_and_settings(model_type, settings, tmp_path):
    model = sized(model_type, **settings)
    rng = np.random.default_rng(0)
    texts = ["".join(rng.choice(list(ALPHABET), size)) for size in (250, 1, 33, 5, 12, 11, 64)]
    expected = np.stack([rounded_copy(model).encode(text) for text in texts])
    assert_near(vectors(*native(model, tmp_path), texts), expected)


@needs_kernels
def test_modules_after_pooling(tmp_path):
    modules = list(make_model("bert", "mean"))[:2]
    norm = LayerNorm(24)
    nn.init.normal_(norm.norm.weight)
    modules += [
        Dense(32, 24, activation_function=nn.GELU()),
        norm,
        Dense(24, 50, activation_function=nn.Identity()),
    ]
    model = SentenceTransformer(modules=modules, device="cpu").eval()
    expected = rounded_copy(model).encode(TEXTS)
    found = vectors(*native(model, tmp_path), TEXTS)
    assert found.shape == (6, 50)
    np.testing.assert_allclose(found, expected, atol=2e-2)
    assert np.abs(found).max() > 1


@needs_kernels
@pytest.mark.parametrize("model_type", ["gte", "qwen3"])
def test_vectors_depend_on_their_text_alone(model_type, tmp_path):
    model = sized(model_type)
    computes, front = native(model, tmp_path, threads=1)
    texts = [*TEXTS, "发热" * 90, *TEXTS[::-1]]
    alone = np.concatenate([vectors(computes, front, [text]) for text in texts])
    np.testing.assert_array_equal(vectors(computes, front, texts), alone)
    for threads in (2, 5):
        many = NativeRuntime(tmp_path / "native-int8.json", {}, threads)
        for _ in range(20):
            np.testing.assert_array_equal(vectors(many, front, texts), alone)


@needs_kernels
def test_a_pack_without_tokens(tmp_path):
    computes, front = native(make_model("gte", "mean"), tmp_path)
    inputs = next(front.packs(["头疼"])).inputs
    inputs["segments"][:] = -1
    inputs["pool"][:] = 0
    assert np.isfinite(computes.run(inputs)).all()
    inputs["positions"][0] = 10**6
    with pytest.raises(EncoderError, match="more positions than the 24 that were exported"):
        computes.run(inputs)


def test_packed_weights():
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
def test_export_measures_it_beside_others(gte_folder, tmp_path, monkeypatch, caplog):
    out = tmp_path / "out"
    listing = export(
        gte_folder, out, precisions=("fp32", "int8"), calibrate=TEXTS, threads=1, show_progress=False
    )
    assert set(listing.variants) == {
        "native-int8", "openvino-fp32", "openvino-int8", "openvino-int8-calibrated",
    }  # fmt: skip
    assert listing.refused == {}
    report = listing.variants["native-int8"].report
    assert report["alone_cosine"] == 1
    assert report["cosine_min"] > 0.99
    original = load_query_encoder(gte_folder).encode(TEXTS)
    found = load_query_encoder(out, backend="native", threads=2)
    assert (found.encode(TEXTS) * original).sum(1).min() > 0.99
    assert np.abs(found.encode(TEXTS) - original).max() > 1e-6

    # On a machine that cannot run it.
    runtime.kernels.cache_clear()
    monkeypatch.setattr(runtime, "NEEDS", frozenset({"avx1024"}))
    try:
        with pytest.raises(EncoderError, match=r"this one has no avx1024\. Use an OpenVINO or ONNX variant"):
            load_query_encoder(out, backend="native")
        object.__setattr__(listing, "chosen", "native-int8")
        listing.write(out)
        other = load_query_encoder(out, threads=1)
        assert other.variant.runtime == "openvino"
        assert f"{other.variant.name} is used in place of native-int8" in caplog.text
        assert other.identity != found.identity
        again = export(gte_folder, tmp_path / "again", threads=1, show_progress=False)
        assert set(again.variants) == {"openvino-int8"}
        assert "no avx1024" in again.refused["native-int8"]
        with pytest.raises(ExportError, match=r"Nothing could be exported: native-int8: .* no avx1024"):
            export(gte_folder, tmp_path / "none", formats=("native",), show_progress=False)
    finally:
        runtime.kernels.cache_clear()


@needs_kernels
def test_unsupported_models_are_refused(gte_folder, tmp_path):
    with pytest.raises(ExportError, match="computes in int8"):
        export(gte_folder, tmp_path / "out", formats=("native",), precisions=("fp32",), show_progress=False)
    model = make_model("gte")
    model[0].model.config.model_type = "nix"
    with pytest.raises(ExportError, match=r"computes gte, bert, .*; this is nix"):
        native(model, tmp_path)
    model = make_model("gte")
    model[0].model.config.hidden_act = "mish"
    with pytest.raises(ExportError, match="not 'mish'"):
        native(model, tmp_path)
    model = make_model("gte")
    model[0].model.rotary_emb.rope_type = "dynamic"
    with pytest.raises(ExportError, match="depend on a text's length"):
        native(model, tmp_path)
    model = make_model("gte")
    model[0].model.rotary_emb.inv_freq = model[0].model.rotary_emb.inv_freq[:2]
    with pytest.raises(ExportError, match="a part of each"):
        native(model, tmp_path)
    model = make_model("gte")
    model[0].model.layers[1].mlp.down_proj.weight.data[3, 2] = np.nan
    with pytest.raises(ExportError, match="not finite"):
        native(model, tmp_path)
    model = make_model("bert")
    model[0].max_seq_length = 100
    with pytest.raises(ExportError, match="has 64 positions, and texts may need 100"):
        native(model, tmp_path)
    modules = [*make_model("bert"), Dense(32, 8, activation_function=nn.Softplus())]
    with pytest.raises(ExportError, match="no activation 'softplus' after pooling"):
        native(SentenceTransformer(modules=modules, device="cpu"), tmp_path)


@needs_kernels
def test_broken_descriptions_are_refused(tmp_path):
    import json

    native(make_model("qwen3", "lasttoken", dense=8), tmp_path)
    path, size = tmp_path / "native-int8.json", np.load(tmp_path / "native-int8.npy").nbytes
    content = json.loads(path.read_text(encoding="utf-8"))
    Description.of(content, size)

    def broken(change):
        other = copy.deepcopy(content)
        change(other)
        with pytest.raises(EncoderError):
            Description.of(other, size)

    broken(lambda c: c["layers"][1]["down"].update(weight=size - 64))
    broken(lambda c: c["layers"][0]["qkv"].update(scales=-64))
    broken(lambda c: c["layers"][0]["qkv"].update(weight=-1))
    broken(lambda c: c["layers"][0]["out"].update(scales=4))
    broken(lambda c: c["layers"][0]["up"].update(outputs=4096))
    broken(lambda c: c["layers"][0]["query"].update(weight=size))
    broken(lambda c: c["layers"][0].update(cosines=size - 4))
    broken(lambda c: c["steps"][0]["linear"].update(bias=2))
    broken(lambda c: c["model"].update(hidden=64))
    broken(lambda c: c["model"].update(key_heads=0))
    broken(lambda c: c["model"].update(dim=32))
    broken(lambda c: c["model"].pop("inner"))
    broken(lambda c: c.update(tables=10**9))
    broken(lambda c: c["model"].update(hidden=c["model"]["hidden"] + 2**32))
    broken(lambda c: c["layers"][0]["qkv"].update(outputs=c["layers"][0]["qkv"]["outputs"] - 2**32))
    broken(lambda c: c["layers"][0]["query"].update(weight=size, absent=1))
    broken(lambda c: c["layers"][0].update(sines=-1))
    broken(lambda c: c["model"].update(heads=True))
    broken(lambda c: c["model"].update(eps=float("nan")))
    broken(lambda c: c.update(layers=[]))
    broken(lambda c: c.update(layers={}))
    broken(lambda c: c.update(steps=[3]))
    path.write_text(json.dumps({**content, "tables": 10**9}), encoding="utf-8")
    with pytest.raises(EncoderError, match=r"native-int8.json cannot be used: .* Export the encoder again"):
        NativeRuntime(path, {}, 1)


CORRUPTED = """
import copy, json, random, sys
from pathlib import Path
import numpy as np
from mar_st.online.native_runtime import NativeRuntime
from mar_st.online import EncoderError

folder, seed = Path(sys.argv[1]), int(sys.argv[2])
path = folder / "native-int8.json"
content = json.loads(path.read_text())
rows, hidden = 21, content["model"]["hidden"]
inputs = {
    "embeddings": np.random.default_rng(0).standard_normal((rows, hidden)).astype(np.float32),
    "positions": np.arange(rows, dtype=np.int64),
    "segments": np.zeros(rows, dtype=np.int32),
    "pool": np.zeros(1, dtype=np.int64),
}

def places(part, way=()):
    items = part.items() if isinstance(part, dict) else enumerate(part)
    for name, value in items:
        yield (*way, name)
        if isinstance(value, (dict, list)):
            yield from places(value, (*way, name))

values = random.Random(seed)
opened = refused = 0
for way in list(places(content)):
    for _ in range(6):
        other = copy.deepcopy(content)
        part = other
        for name in way[:-1]:
            part = part[name]
        before = part[way[-1]]
        number = before if isinstance(before, (int, float)) else 0
        new = values.choice([
            -1, 0, 1, 2, 3, number + 1, number - 1, number * 2, number + 64, number - 64, number + 2**32,
            number - 2**32, 2**31 - 1, 2**31, -(2**31), 2**63 - 1, 2**63, 10**30, 1e30, 1e300, 0.5,
            float("nan"), float("inf"), "x", "", None, True, [], {}, [1], {"absent": 1},
            values.randrange(2**20) * 64, values.randrange(4096), ...,
        ])
        if new is ...:
            del part[way[-1]]
        else:
            part[way[-1]] = new
        path.write_text(json.dumps(other))
        try:
            NativeRuntime(path, {}, 1).run(inputs)
            opened += 1
        except EncoderError as error:
            assert "\\n" not in str(error)
            refused += 1
print(opened, refused)
"""


@needs_kernels
@pytest.mark.parametrize(("kind", "pooling"), [("gte", "cls"), ("bert", "cls"), ("qwen3", "lasttoken")])
def test_a_description_with_any_field_corrupted_is_an_error_or_harmless(tmp_path, kind, pooling):
    native(make_model(kind, pooling, dense=8), tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", CORRUPTED, str(tmp_path), "7"], capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    opened, refused = map(int, done.stdout.split())
    assert refused > 300
    assert opened > 20  # other places of weights and other settings are not wrong in themselves


@needs_kernels
def test_a_table_of_another_width_is_refused(tmp_path):
    computes, front = native(make_model("gte"), tmp_path)
    inputs = next(iter(front.packs(["头疼"]))).inputs
    for width in (8, 31, 33, 64):
        other = {**inputs, "embeddings": np.zeros((len(inputs["embeddings"]), width), dtype=np.float32)}
        with pytest.raises(EncoderError, match=r"shape \(16, "):
            computes.run(other)
    for pool in (np.array([16]), np.array([-1]), np.array([10**9])):
        with pytest.raises(EncoderError, match="Pooling asks for more"):
            computes.run({**inputs, "pool": pool})


@needs_kernels
@pytest.mark.parametrize("how", ["floats", "two dimensions", "cut", "no header", "gone", "odd start"])
def test_weights_other_than_plain_bytes_are_refused(tmp_path, how):
    native(make_model("gte"), tmp_path)
    path = tmp_path / "native-int8.npy"
    content = np.load(path)
    if how == "floats":
        np.save(path, content[: len(content) // 8 * 8].view(np.float64))
    elif how == "two dimensions":
        np.save(path, content.reshape(2, -1) if len(content) % 2 == 0 else content[None])
    elif how == "cut":
        path.write_bytes(path.read_bytes()[:-64])
    elif how == "no header":
        path.write_bytes(b"\x93NUMPY\x01\x00\xff\xff{" + b"(" * 50_000)
    elif how == "gone":
        path.unlink()
    else:
        header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (%d,)}" % len(content)
        header = header.ljust(100) + b"\n"
        start = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
        path.write_bytes(start + content.tobytes())
    with pytest.raises(EncoderError, match=r"native-int8.json cannot be used: .* Export the encoder again"):
        NativeRuntime(tmp_path / "native-int8.json", {}, 1)
