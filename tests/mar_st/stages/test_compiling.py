from __future__ import annotations

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
    monkeypatch.setattr(compiling, "has_compiler", lambda on_cpu: True)
    return calls


@pytest.mark.thorough
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


@pytest.fixture
def no_compilers(monkeypatch, tmp_path):
    """A machine where the variables and the path lead to no compiler."""
    for name in ("CC", "CXX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(compiling.logger, "propagate", True)


def _tool(folder, name):
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)


@pytest.mark.thorough
def test_training_continues_without_a_compiler(tmp_path, no_compilers, caplog):
    plain, asked = encoder(), encoder()
    train_contrastive(plain, [source()], stage("contrastive"), settings(tmp_path, name="plain"), {})
    with caplog.at_level("WARNING"):
        train_contrastive(
            asked, [source()], stage("contrastive"), settings(tmp_path, name="asked", compile=True), {}
        )
    (line,) = (record.message for record in caplog.records if "compile: true" in record.message)
    assert "needs a C++ compiler (g++ or $CXX)" in line
    for name, value in weights(plain).items():
        torch.testing.assert_close(asked.state_dict()[name], value, rtol=0, atol=0)


@pytest.mark.parametrize("triton", [True, False])
def test_without_a_c_compiler_nothing_is_compiled_for_a_gpu(no_compilers, monkeypatch, caplog, triton):
    """Triton is there or not; its launchers need a C compiler in either case."""
    monkeypatch.setattr(compiling, "find_spec", lambda name: object() if triton else None)
    model = encoder()[0].model
    before = model.forward
    with caplog.at_level("WARNING"), compiling.compiled_encoders([model], on_cpu=False):
        assert model.forward == before
    assert model.forward == before
    assert "needs Triton and a C compiler (gcc, clang or $CC)" in caplog.text


def test_a_compiler_is_looked_for_as_the_code_generators_do(no_compilers, monkeypatch, tmp_path):
    monkeypatch.setattr(compiling, "find_spec", lambda name: object())
    monkeypatch.setattr(compiling.sys, "platform", "linux")
    _tool(tmp_path, "clang")
    assert (compiling.has_compiler(on_cpu=False), compiling.has_compiler(on_cpu=True)) == (True, False)
    _tool(tmp_path, "g++")
    assert compiling.has_compiler(on_cpu=True)
    for name, on_cpu in (("CC", False), ("CXX", True)):
        monkeypatch.setenv(name, "/nowhere/compiler")
        assert not compiling.has_compiler(on_cpu=on_cpu)
        _tool(tmp_path, "mine")
        monkeypatch.setenv(name, f"{tmp_path / 'mine'} -m64")
        assert compiling.has_compiler(on_cpu=on_cpu)
    monkeypatch.setattr(compiling, "find_spec", lambda name: None)
    assert not compiling.has_compiler(on_cpu=False)


@pytest.mark.slow
@pytest.mark.skipif(not compiling.has_compiler(on_cpu=True), reason="no C++ compiler")
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
