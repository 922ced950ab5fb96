"""Descriptions of encoders in C++: any number that could lead out of memory is refused."""

from __future__ import annotations

import copy

import pytest

from mar_st.online.native import MAX_SIZE, Description
from mar_st.online.protocol import EncoderError

SIZE = 1 << 16


def linear(inputs, outputs):
    return {"weight": 64, "scales": 128, "inputs": inputs, "outputs": outputs}


@pytest.fixture
def content():
    """An encoder of 32 numbers and 4 heads, two of which share keys, with a dense layer after pooling."""
    layer = {
        "qkv": linear(32, 64), "out": linear(32, 32), "up": linear(32, 48), "down": linear(48, 32),
        "after": {"weight": 0, "bias": 64}, "query": {"weight": 0}, "cosines": 0, "sines": 1024, "window": -1,
    }  # fmt: skip
    sizes = {"hidden": 32, "inner": 48, "head_size": 8, "heads": 4, "key_heads": 2, "dim": 16}
    return {
        "model": {**sizes, "eps": 1e-6},
        "layers": [copy.deepcopy(layer), copy.deepcopy(layer)],
        "steps": [{"kind": 0, "linear": linear(32, 16)}, {"kind": 2}],
        "tables": 64,
    }  # fmt: skip


def test_a_description_keeps_its_numbers(content):
    described = Description.of(content, SIZE)
    assert (described.model.layers, described.model.steps, described.tables) == (2, 2, 64)
    assert (described.model.heads, described.model.types) == (4, -1)
    assert [layer.down.inputs for layer in described.layers] == [48, 48]
    assert (described.layers[1].after.bias, described.layers[1].sines) == (64, 1024)
    assert (described.layers[0].before.absent, described.layers[0].after.absent) == (1, 0)
    assert [step.kind for step in described.steps] == [0, 2]


def test_an_encoder_may_have_no_steps_after_pooling(content):
    content["steps"] = []
    content["model"]["dim"] = 32
    assert Description.of(content, SIZE).model.steps == 0


def test_the_file_must_hold_every_array_to_its_last_byte(content):
    whole = max(start + size for start, size in Description.of(content, SIZE).spans() if start >= 0)
    Description.of(content, whole)
    with pytest.raises(EncoderError, match=f"cannot be at byte .* of {whole - 1}"):
        Description.of(content, whole - 1)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        # places in the file
        ("layers 1 down weight", SIZE - 64),
        ("layers 0 qkv weight", -1),
        ("layers 0 out scales", 4),
        ("layers 0 out bias", 2**63),
        ("layers 0 query", {"weight": SIZE, "absent": 1}),
        ("layers 0 cosines", SIZE - 4),
        ("steps 0 linear bias", 2),
        ("model types", SIZE),
        # sizes that do not fit each other
        ("layers 0 up outputs", 4096),
        ("layers 0 down inputs", 32),
        ("model hidden", 64),
        ("model gated", 1),
        ("model key_heads", 3),
        ("model dim", 32),
        ("tables", SIZE // 4),
        # numbers out of range, which a structure would cut to 32 bits
        ("model hidden", 32 + 2**32),
        ("model key_heads", 0),
        ("model heads", True),
        ("model heads", 4.0),
        ("model inner", "48"),
        ("model inner", ...),
        ("model head_size", MAX_SIZE),
        ("model activation", 6),
        ("model eps", float("nan")),
        ("model eps", 10**400),
        ("steps 0 kind", 3),
        ("layers 0 window", -2),
        ("tables", 10**9),
        ("tables", 0),
        # other types, and parts that are missing
        ("layers", []),
        ("layers 1", None),
        ("layers 0 down", ...),
        ("steps", [3]),
        ("model", ...),
    ],
)
def test_a_description_with_a_wrong_number_is_refused(content, place, value):
    Description.of(content, SIZE)
    part = content
    *way, last = (int(name) if name.isdigit() else name for name in place.split())
    for name in way:
        part = part[name]
    if value is ...:
        del part[last]
    else:
        part[last] = value
    with pytest.raises(EncoderError) as error:
        Description.of(content, SIZE)
    assert len(str(error.value)) < 200


@pytest.mark.parametrize(("key_heads", "even"), [(1, True), (3, False), (4, True)])
def test_heads_share_keys_evenly(content, key_heads, even):
    content["model"]["key_heads"] = key_heads
    for layer in content["layers"]:
        layer["qkv"]["outputs"] = 8 * (4 + 2 * key_heads)
    if even:
        assert Description.of(content, SIZE).model.key_heads == key_heads
    else:
        with pytest.raises(EncoderError, match="4 heads of 8 cannot share 3"):
            Description.of(content, SIZE)


@pytest.mark.parametrize("whole", [None, [], 3, "layers", {}])
def test_a_file_that_is_no_description_is_refused(whole):
    with pytest.raises(EncoderError, match="the description is broken"):
        Description.of(whole, SIZE)
