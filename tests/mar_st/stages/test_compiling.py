from __future__ import annotations

import shutil

import pytest
import torch

from mar_st.stages import compiling
from mar_st.stages.contrastive import train_contrastive
from mar_st.stages.joint import train_joint
from tests.mar_st.stages.helpers import apart, changed, encoder, mar, settings, source, stage, weights


@pytest.fixture
def compile_calls(monkeypatch):
    """`torch.compile` without its code generator, which takes many seconds; what it is given is recorded."""
    calls = []

    def compile_(function, **options):
        calls.append(options)
        return function

    monkeypatch.setattr(torch, "compile", compile_)
    monkeypatch.setattr(compiling, "has_compiler", lambda: True)
    return calls


def test_both_encoders_of_a_mar_are_compiled_and_left_as_they_were(tmp_path, compile_calls):
    model = mar()
    encoders = [module.model for module in model.modules() if hasattr(module, "auto_model")]
    assert len(encoders) == 2
    attention = [encoder.config._attn_implementation for encoder in encoders]
    train_joint(model, [source()], stage("joint"), settings(tmp_path, compile=True), {})
    assert compile_calls == [{"dynamic": True}] * 2
    assert [encoder.config._attn_implementation for encoder in encoders] == attention
    assert not any("forward" in vars(encoder) for encoder in encoders)


def test_nothing_is_compiled_unless_asked_for(tmp_path, compile_calls):
    train_contrastive(encoder(), [source()], stage("contrastive"), settings(tmp_path), {})
    assert compile_calls == []


def test_without_a_compiler_training_goes_on(tmp_path, monkeypatch, caplog):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(compiling.logger, "propagate", True)
    plain, asked = encoder(), encoder()
    train_contrastive(plain, [source()], stage("contrastive"), settings(tmp_path, name="plain"), {})
    with caplog.at_level("WARNING"):
        train_contrastive(
            asked, [source()], stage("contrastive"), settings(tmp_path, name="asked", compile=True), {}
        )
    assert "needs a C++ compiler" in caplog.text
    for name, value in weights(plain).items():
        torch.testing.assert_close(asked.state_dict()[name], value, rtol=0, atol=0)


@pytest.mark.slow
@pytest.mark.skipif(not compiling.has_compiler(), reason="no C++ compiler")
@pytest.mark.parametrize("model_type", ["gte", "qwen3"])
def test_compiled_training_is_plain_training_to_rounding(tmp_path, model_type):
    plain, compiled = (encoder(model_type, width=32) for _ in range(2))
    start = weights(plain)
    train_contrastive(plain, [source()], stage("contrastive"), settings(tmp_path, name="plain"), {})
    train_contrastive(
        compiled, [source()], stage("contrastive"), settings(tmp_path, name="compiled", compile=True), {}
    )
    assert apart(weights(compiled), weights(plain), start) < 1e-2
    assert changed(plain, start)
