from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import pytest

from mar_st.stages.arguments import ArgumentsError
from mar_st.stages.contrastive import train_contrastive
from mar_st.stages.deepspeed import check_deepspeed
from mar_st.stages.joint import train_joint
from tests.mar_st.stages.helpers import encoder, mar, settings, source, stage

CONFIGS = Path(str(files("mar_st") / "configs"))


@pytest.mark.parametrize("zero", [0, 1, 2])
def test_shipped_configurations_leave_sizes_to_the_trainer(zero):
    content = json.loads((CONFIGS / f"zero{zero}.json").read_text(encoding="utf-8"))
    assert content["zero_optimization"]["stage"] == zero
    sizes = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    assert {content[name] for name in (*sizes, "gradient_clipping")} == {"auto"}


def test_there_are_no_others():
    assert {path.name for path in CONFIGS.iterdir()} == {"zero0.json", "zero1.json", "zero2.json"}


@pytest.mark.parametrize("zero", [0, 1, 2])
def test_a_learnable_temperature_is_refused_before_anything_is_trained(tmp_path, monkeypatch, zero):
    made = stage("contrastive", learnable_temperature=True)
    run = settings(tmp_path, deepspeed=CONFIGS / f"zero{zero}.json")
    with pytest.raises(ArgumentsError, match="cannot train a learnable temperature"):
        train_contrastive(encoder(), [source()], made, run, {})
    monkeypatch.setenv("MAR_DEEPSPEED", str(CONFIGS / f"zero{zero}.json"))
    with pytest.raises(ArgumentsError, match="cannot train a learnable temperature"):
        train_contrastive(encoder(), [source()], made, settings(tmp_path), {})


def test_gradcache_is_refused_with_zero_2_alone(tmp_path):
    cached = stage("joint", mini_batch_size=4)
    with pytest.raises(ArgumentsError, match=r"ZeRO 2 .* cannot be combined with mini_batch_size"):
        train_joint(mar(), [source()], cached, settings(tmp_path, deepspeed=CONFIGS / "zero2.json"), {})
    for zero, made in ((0, cached), (1, cached), (2, stage("joint"))):
        check_deepspeed(made, settings(tmp_path, deepspeed=CONFIGS / f"zero{zero}.json"))
    check_deepspeed(cached, settings(tmp_path))
