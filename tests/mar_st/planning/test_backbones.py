from __future__ import annotations

import json

import pytest

from mar_st.errors import MarError
from mar_st.planning.backbones import count, known_backbones, meta_model, shape_of, source_shape
from mar_st.recipes.schema import Backbone


@pytest.mark.parametrize(
    ("name", "total", "embeddings"),
    [
        ("Alibaba-NLP/gte-multilingual-mlm-base", 305_368_320, 305_368_320 - 113_331_456),
        ("Qwen/Qwen3-0.6B", 596_049_920, 151_936 * 1024),
        ("Qwen/Qwen3-4B", 4_022_468_096, 151_936 * 2560),
        ("Qwen/Qwen3-8B", 7_568_405_504, 151_936 * 4096),
        ("thenlper/gte-base", 109_482_240, 30_522 * 768),
    ],
)
def test_parameter_counts_are_the_published_ones(name, total, embeddings):
    counts = count(source_shape(name))
    assert (counts.total, counts.embeddings) == (total, embeddings)


def test_three_layers_of_the_4b_encoder_are_the_published_302_8m():
    document = Backbone(source="Qwen/Qwen3-4B")
    query = Backbone(layers_of_document=(0, 1, 2), pooling="lasttoken")
    counts = count(shape_of(query, document))
    norm = 2560
    assert counts.total - counts.embeddings - norm == 302_792_448
    with pytest.raises(MarError, match="names layer 36, but Qwen/Qwen3-4B has 36 layers"):
        shape_of(Backbone(layers_of_document=(0, 36)), document)


@pytest.mark.parametrize("name", known_backbones())
def test_every_listed_shape_builds(name):
    shape = source_shape(name)
    model = meta_model(shape.with_layers(1))
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}
    assert model.config.hidden_size == shape.width


def test_a_projection_is_counted():
    plain = shape_of(Backbone(source="thenlper/gte-base"))
    wide = shape_of(Backbone(source="thenlper/gte-base", projection=2560))
    assert count(wide).total - count(plain).total == 768 * 2560 + 2560
    assert count(wide).linear == count(plain).linear


def test_folders_are_read(tmp_path):
    content = {"model_type": "bert", "hidden_size": 32, "num_hidden_layers": 3, "torch_dtype": "bfloat16"}
    (tmp_path / "config.json").write_text(json.dumps({**content, "architectures": ["BertModel"]}))
    shape = source_shape(str(tmp_path))
    assert (shape.width, shape.layers, shape.dtype) == (32, 3, "bfloat16")
    assert "architectures" not in shape.config
    inner = tmp_path / "st"
    (inner / "0_Transformer").mkdir(parents=True)
    (inner / "modules.json").write_text(json.dumps([{"path": "0_Transformer", "type": "x.Transformer"}]))
    (tmp_path / "config.json").rename(inner / "0_Transformer" / "config.json")
    assert source_shape(str(inner)).width == 32
    with pytest.raises(MarError, match=r"no readable config\.json"):
        source_shape(str(tmp_path))


def test_unknown_names_say_what_to_do():
    with pytest.raises(MarError, match=r"not known.*Qwen/Qwen3-4B.*Download it once"):
        source_shape("nobody/such-model-as-this")
