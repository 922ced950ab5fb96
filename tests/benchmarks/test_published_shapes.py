"""Folders of random weights that load like the published models."""

from __future__ import annotations

import published_shapes as shapes
import pytest
import torch
from safetensors import safe_open
from transformers import AutoModel, AutoTokenizer, Qwen2Tokenizer, XLMRobertaTokenizer

from mar_st.model.encoders import load_encoder
from tests.conftest import DOCUMENTS

NAMES = [shapes.GTE, shapes.QWEN_4B]


@pytest.fixture(scope="module")
def texts():
    return shapes.packaged_texts()[:2000]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "kind", "size", "ids"),
    [
        pytest.param(
            shapes.GTE,
            XLMRobertaTokenizer,
            250_002,
            {"<s>": 0, "<pad>": 1, "</s>": 2, "<mask>": 250_001},
            marks=pytest.mark.slow,
        ),
        (
            shapes.QWEN_8B,
            Qwen2Tokenizer,
            151_669,
            {"<|endoftext|>": 151_643, "<|im_end|>": 151_645, "</think>": 151_668},
        ),
    ],
)
def test_tokenizer_has_the_published_size_and_special_ids(name, kind, size, ids, texts, tmp_path):
    shapes.make_tokenizer(shapes.shape_of(name), texts).save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert isinstance(tokenizer, kind)
    assert len(tokenizer) == size <= shapes.shape_of(name).config["vocab_size"]
    assert {token: tokenizer.convert_tokens_to_ids(token) for token in ids} == ids
    encoded = [tokenizer(text)["input_ids"] for text in texts[:200]]
    assert max(max(row) for row in encoded) > 256 * 4  # more than single bytes
    characters = sum(map(len, texts[:200])) / sum(map(len, encoded))
    assert 1.3 < characters < 2.2  # as the published tokenizers cut Chinese


@pytest.mark.thorough
@pytest.mark.parametrize("name", NAMES)
def test_tiny_folder_is_an_encoder_of_its_side(name, texts, tmp_path):
    folder = shapes.write_backbone(name, tmp_path / "encoder", tiny=True, texts=texts)
    role = "query" if name == shapes.GTE else "document"
    transformer, _ = load_encoder(str(folder), role)
    assert transformer.model.dtype == torch.bfloat16
    published = shapes.shape_of(name).config
    assert transformer.model.config.model_type == published["model_type"]
    features = transformer.preprocess(list(DOCUMENTS.values()))
    states = transformer(features)["token_embeddings"]
    assert torch.isfinite(states).all()
    assert not any(path.name.endswith(".part") for path in tmp_path.iterdir())


@pytest.mark.thorough
def test_shards_hold_every_weight_once_and_the_same_bytes(texts, tmp_path):
    one = shapes.write_backbone(shapes.QWEN_4B, tmp_path / "one", tiny=True, texts=texts)
    many = shapes.write_backbone(
        shapes.QWEN_4B, tmp_path / "many", tiny=True, texts=texts, shard_bytes=100_000
    )
    files = sorted(many.glob("*.safetensors"))
    assert len(files) > 2
    expected, sharded = (AutoModel.from_pretrained(folder).state_dict() for folder in (one, many))
    assert expected.keys() == sharded.keys()
    assert all(torch.equal(expected[name], sharded[name]) for name in expected)
    stored = [name for file in files for name in safe_open(file, framework="pt").keys()]  # noqa: SIM118
    assert sorted(stored) == sorted(expected)


def test_an_existing_folder_is_not_changed(texts, tmp_path):
    folder = shapes.write_backbone(shapes.GTE, tmp_path / "encoder", tiny=True, texts=texts)
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    shapes.write_backbone(shapes.GTE, folder, tiny=True, texts=texts)
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before
