"""Tiny query encoders of several architectures, saved as sentence-transformers folders."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize
from sentence_transformers.sentence_transformer.modules import Pooling

from mar_st.export import ExportSettings, export
from mar_st.export.graph import PackedEncoder, parts_of, write_front
from mar_st.export.native import native_writer
from mar_st.model.encoders import load_encoder
from mar_st.modules.bigrams import Bigrams, BigramTransformer
from mar_st.online.front import TextPacker
from mar_st.online.listing import Listing
from mar_st.online.native import NativeRuntime
from mar_st.online.torch_encoder import TorchEncoder
from tests.mar_st.conftest import make_config, make_tokenizer
from tests.once import once

TEXTS = ["头疼吃什么药", "感冒", "感冒发热怎么办呢", "高血压医生你好", "a", "头疼" * 40]

#: Architectures and ways of pooling.
FAMILIES = [
    ("gte", "cls"),
    ("gte", "mean"),
    ("bert", "cls"),
    ("bert", "mean"),
    ("xlm-roberta", "mean"),
    ("modernbert", "cls"),
    ("qwen3", "lasttoken"),
]


def make_model(
    model_type="gte", pooling="cls", *, config=None, dense=None, prompts=None, include_prompt=True, seed=0
):
    torch.manual_seed(seed)
    role = "document" if pooling == "lasttoken" else "query"
    source = (config or make_config(model_type), make_tokenizer(role))
    modules = load_encoder(source, role, pooling="cls" if pooling not in ("cls", "lasttoken") else pooling)
    modules[0].max_seq_length = 24
    table = modules[0].model.get_input_embeddings().weight.data
    table.copy_(table.half())  # as it is exported
    modules[1] = Pooling(32, pooling, include_prompt=include_prompt)
    if dense:
        modules.append(Dense(32, dense, activation_function=torch.nn.Tanh()))
    modules.append(Normalize())
    return SentenceTransformer(modules=modules, prompts=prompts, device="cpu").eval()


def with_pairs(model, texts=TEXTS):
    """The model with random vectors of all pairs of tokens in some texts."""
    pairs = [pair for ids in model[0].tokenizer(list(texts))["input_ids"] for pair in pairwise(ids)]
    unique_pairs = torch.tensor(pairs).unique(dim=0)
    width = model[0].model.get_input_embeddings().weight.shape[1]
    vectors = (
        torch.randn(2, len(unique_pairs), width, generator=torch.Generator().manual_seed(5)).half().float()
    )
    modules = [BigramTransformer.of(model[0], Bigrams(unique_pairs, *vectors)), *list(model)[1:]]
    return SentenceTransformer(modules=modules, prompts=model.prompts, device="cpu").eval()


@pytest.fixture(scope="session")
def gte_folder(tmp_path_factory):
    """The tiny gte encoder; the export of `exported` names it. Copy before changing."""
    return once(tmp_path_factory, "gte", _save) / "model"


def _save(folder):
    make_model(prompts={"query": "吃：", "document": ""}).save(str(folder / "model"))


@pytest.fixture(scope="session")
def exported(gte_folder, tmp_path_factory):
    """The tiny gte encoder in OpenVINO, in both precisions, and its listing. Copy before changing."""

    def write(folder):
        formats = ["openvino-fp32", "openvino-int8"]
        export(ExportSettings(model=str(gte_folder), out=folder / "out", format=formats))

    out = once(tmp_path_factory, "exported", write) / "out"
    return out, Listing.read(out)


def native(model, folder, threads=2):
    """A model in C++, and what makes its inputs."""
    parts = parts_of(list(model))
    listing = write_front(TorchEncoder(model), parts, folder, source="tiny")
    variant = native_writer(PackedEncoder(parts).eval(), {}, listing, folder)("int8")
    return NativeRuntime(folder / variant.graph, threads), TextPacker(folder, listing)


@pytest.fixture(scope="session")
def kernels():
    """The compiled kernels; skips the test where they cannot be had."""
    from mar_st.online import native
    from mar_st.online.protocol import EncoderError

    try:
        return native.kernels()
    except EncoderError as error:
        pytest.skip(str(error))
