"""Tests of the options of an alignment: refused values and the recorded form."""

from __future__ import annotations

import json

import pytest

from mar_st.errors import MarError
from mar_st.spaces import AlignSettings


@pytest.mark.parametrize("share", [1, -0.1, float("nan")])
def test_a_share_of_all_weights_is_refused(share):
    with pytest.raises(MarError, match="at least 0 and below 1; got"):
        AlignSettings(refine_start_share=share)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch_size", 1),
        ("learning_rate", 0),
        ("refine_learning_rate", -1e-4),
        ("refine_learning_rate", 0.0),
        ("refine_temperature", 0),
        ("refine_temperature", float("nan")),
        ("refine_epochs", 0),
        ("refine_epochs", float("inf")),
        ("refine_negatives", -1),
        ("held_out", -1),
    ],
)
def test_impossible_values_are_refused_with_their_name(name, value):
    with pytest.raises(MarError, match=rf"\b{name}\b.*; got {value}"):
        AlignSettings(**{name: value})


def test_unknown_dtypes_and_too_small_batches_are_refused():
    with pytest.raises(MarError, match="dtype must be float32 or bfloat16; got 'bf16'"):
        AlignSettings(dtype="bf16")
    with pytest.raises(MarError, match="refine_batch_size must be at least 2; got 64 and 1"):
        AlignSettings(refine_batch_size=1)


@pytest.mark.parametrize(
    "options", [{"refine_negatives": 0, "held_out": 0}, {"batch_size": 2, "refine_batch_size": 2}]
)
def test_lowest_values_are_allowed(options):
    assert vars(AlignSettings(**options)).items() >= options.items()


def test_recorded_options_change_with_every_option_but_the_steps_between_checkpoints():
    others = {
        "batch_size": 8, "dtype": "bfloat16", "dropout": True, "seed": 1, "prompt": "", "dim": 32,
        "refine_start_share": 0.5, "refine_negatives": 0, "query_only": True,
    }  # fmt: skip
    recorded = AlignSettings().to_json()
    assert AlignSettings(save_steps=7).to_json() == recorded
    assert json.loads(json.dumps(recorded)) == recorded
    for name, value in others.items():
        assert AlignSettings(**{name: value}).to_json() != recorded


@pytest.mark.parametrize(("dtype", "precision"), [("float32", "fp32"), ("bfloat16", "bf16")])
def test_the_dtype_is_recorded_as_a_precision(dtype, precision):
    options = AlignSettings(dtype=dtype)
    assert options.to_json()["precision"] == precision
    assert options.autocast == (dtype == "bfloat16")


def test_a_share_of_0_is_recorded_as_before_the_option_existed():
    assert "refine_start_share" not in AlignSettings(refine_start_share=0.0).to_json()
    assert AlignSettings(refine_start_share=0.25).to_json()["refine_start_share"] == 0.25
