from __future__ import annotations

import json
import sys
from importlib.resources import files

import pytest

from mar_st.cli import main


@pytest.fixture
def command(monkeypatch, capsys):
    def call(*args):
        monkeypatch.setattr(sys, "argv", ["mar", *map(str, args)])
        with pytest.raises(SystemExit) as stop:
            main()
        out, err = capsys.readouterr()
        return stop.value.code or 0, out, err

    return call


@pytest.mark.slow
def test_plan_prints_a_block_per_stage(command):
    code, out, _ = command("plan", "kale", "--gpu", "A100-40GB", "--world", "8")
    assert code == 0
    assert out.startswith("kale on 8 x A100-40GB: 40% of 312 TFLOP/s per device (bf16)")
    assert "document-init (contrastive)" in out
    assert "document lora (66.1M trained, 4,022.5M frozen, bfloat16)" in out
    assert "query full (691.8M trained, 0.0M frozen, float32)" in out
    assert "all stages:" in out.splitlines()[-1]


@pytest.mark.slow
def test_plan_prints_the_setting_that_fits(command):
    code, out, _ = command("plan", "medte")
    (line,) = (line for line in out.splitlines() if line.startswith("  fits with"))
    setting = line.split("fits with")[1].split()
    assert setting[0] == "--set"
    code, out, _ = command("plan", "medte", *setting)
    assert (code, "DOES NOT FIT" in out, "fits with" in out) == (0, False, False)


def test_plan_checks_the_configuration_that_training_would_take(command, monkeypatch):
    monkeypatch.setenv("MAR_DEEPSPEED", str(files("mar_st") / "configs" / "zero2.json"))
    code, out, err = command("plan", "mar-0.3b-4b", "--world", "8")
    assert (code, out) == (2, "")
    assert "stage unsupervised: ZeRO 2" in err
    assert "stage align: ZeRO 2" in err


def test_plan_prints_json_and_applies_settings(command):
    setting = "stages.symmetric.max_steps=100"
    code, out, _ = command("plan", "mini-symmetric-query", "--mfu", "0.5", "--json", "--set", setting)
    content = json.loads(out)
    assert (code, content["device"], content["stages"][0]["steps"]) == (0, "H100", 100)
    assert content["stages"][0]["memory"]["peak"] > content["stages"][0]["memory"]["weights"]


@pytest.mark.slow
def test_plan_can_measure_the_speed(command):
    config = "stages.symmetric.max_steps=100"
    code, out, err = command(
        "plan", "mini-symmetric-query", "--calibrate", "--set", config, "--set", "compile=false"
    )
    assert code == 0, err
    assert "speed measured on this machine" in out
    assert "TFLOP/s at" in err
    assert "100, " in out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("kale", "--gpu", "Z80"), "No device 'Z80'; known are H200"),
        (("kale", "--calibrate", "--mfu", "0.3"), "leave out --mfu"),
        (("kale", "--world", "3"), "3 devices cannot share it evenly"),
        (("kael",), "Did you mean 'kale'"),
    ],
)
def test_errors_are_one_line(command, args, message):
    code, out, err = command("plan", *args)
    assert code == 2
    assert message in err
    assert out == ""
    assert err.count("\n") == 1
