from __future__ import annotations

import json
import shutil
from importlib.resources import files
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from mar_st.files.packages import PackageError
from mar_st.planning.devices import Device
from mar_st.planning.launch import Launch, LaunchError, check_launch
from mar_st.planning.plan import plan
from mar_st.recipes.load import load_recipe
from mar_st.runs.preflight import FIT_KEY, check_packages, native_precision, ready
from mar_st.runs.train import TrainError, train

CONFIGS = Path(str(files("mar_st") / "configs"))
H100 = Device(None, None, 79.2)


def _ready(recipe, marker, device=H100, fit=None, launch=None):
    lines = []
    return *ready(recipe, marker, launch or Launch(), device, fit=fit, say=lines.append), lines


def test_all_stages_of_the_documented_launch_can_be_trained():
    """ZeRO 1 with a learnt temperature, RetroMAE's decoder and GradCache."""
    for name in ("mar-0.3b-4b", "medical-embedder-base", "kale", "medte"):
        for zero in (0, 1):
            check_launch(load_recipe(name), Launch(8, CONFIGS / f"zero{zero}.json"))


def test_every_stage_that_cannot_be_trained_is_named():
    recipe = load_recipe("mar-0.3b-4b")
    with pytest.raises(LaunchError) as refused:
        check_launch(recipe, Launch(8, CONFIGS / "zero2.json"))
    named = [stage.name for stage in recipe.stages if f"stage {stage.name}: ZeRO 2" in str(refused.value)]
    assert named == ["unsupervised", "query-init", "document-init", "align", "joint"]
    assert "Use ZeRO 1" in str(refused.value)
    with pytest.raises(LaunchError, match=r"stage retromae: batch_size 384.*stage joint: batch_size 640"):
        check_launch(recipe, Launch(7))
    with pytest.raises(LaunchError, match="does not compute in"):
        check_launch(recipe, Launch(bf16=False))
    split = load_recipe("mar-0.3b-4b", ["stages.joint.gradient_accumulation=64"])
    with pytest.raises(LaunchError, match="80 rows per device cannot be split into gradient_accumulation 64"):
        check_launch(split, Launch(8))


@pytest.mark.parametrize("section", ["optimizer", "scheduler"])
def test_a_configuration_with_an_optimiser_of_its_own_is_refused(tmp_path, section):
    path = tmp_path / "ds.json"
    path.write_text(json.dumps({"zero_optimization": {"stage": 1}, section: {"type": "AdamW"}}))
    with pytest.raises(LaunchError, match=f"has the section '{section}'"):
        check_launch(load_recipe("kale"), Launch(8, path))
    with pytest.raises(LaunchError, match="pip install deepspeed"):
        check_launch(load_recipe("kale"), Launch(8, CONFIGS / "zero1.json", installed=False))


def test_nothing_is_read_or_loaded_before_the_launch_is_checked(recipe_file, tmp_path, monkeypatch):
    """The last stage alone cannot be trained."""
    monkeypatch.setenv("MAR_DEEPSPEED", str(CONFIGS / "zero2.json"))
    monkeypatch.setattr("mar_st.planning.launch.find_spec", lambda name: object())
    recipe = load_recipe(recipe_file, ["stages.joint.mini_batch_size=4"])

    def read(entry, seed):
        raise AssertionError

    with pytest.raises(LaunchError, match="stage joint: ZeRO 2"):
        train(recipe, tmp_path / "run", read=read, say=lambda line: None)
    assert not (tmp_path / "run").exists()
    # It is not looked at where the run stops before it.
    with pytest.raises(AssertionError):
        train(recipe, tmp_path / "run", read=read, until="align", say=lambda line: None)


@pytest.mark.parametrize(("package", "settings"), [("accelerate", []), ("peft", ["stages.joint.lora_r=4"])])
def test_missing_packages_are_named_before_anything_is_read(
    recipe_file, tmp_path, monkeypatch, package, settings
):
    def read(entry, seed):
        raise AssertionError

    def found(name):
        return None if name == package else object()

    monkeypatch.setattr("mar_st.files.packages.find_spec", found)
    message = rf"Training needs the package {package}\. Install: pip install 'medteb\[train\]'"
    with pytest.raises(PackageError, match=message):
        train(load_recipe(recipe_file, settings), tmp_path / "run", read=read, say=lambda line: None)
    assert not (tmp_path / "run").exists()


def test_a_recipe_without_lora_needs_no_peft(recipe_file, monkeypatch):
    monkeypatch.setattr("mar_st.files.packages.find_spec", lambda name: None if name == "peft" else object())
    check_packages(load_recipe(recipe_file))


# -- precision --


def test_a_cpu_without_bfloat16_trains_in_float32(recipe_file, tmp_path, monkeypatch):
    def trained(precision):
        recipe = load_recipe(recipe_file, [f"precision={precision}", "stages.query-init.max_steps=3"])
        folder = train(recipe, tmp_path / precision, until="query-init", say=lines.append)
        return load_file(next(folder.rglob("model.safetensors")))

    lines = []
    expected = trained("fp32")
    monkeypatch.setattr("mar_st.runs.preflight.is_native", lambda dtype: False)
    weights = trained("bf16")
    assert "computes in float32" in "\n".join(lines)
    assert all(torch.equal(weights[name], tensor) for name, tensor in expected.items())
    monkeypatch.setattr("mar_st.runs.preflight.is_native", lambda dtype: True)
    shutil.rmtree(tmp_path / "bf16")
    weights = trained("bf16")
    assert not all(torch.equal(weights[name], tensor) for name, tensor in expected.items())


def test_a_gpu_computes_in_the_precision_of_the_recipe(monkeypatch):
    monkeypatch.setattr("mar_st.runs.preflight.is_native", lambda dtype: False)
    assert native_precision("bf16", on_cpu=False, say=pytest.fail) == "bf16"


# -- memory --


@pytest.mark.slow
def test_stages_that_do_not_fit_are_refused_with_the_change_that_fits(tmp_path):
    recipe = load_recipe("mar-0.3b-4b")
    setting = "stages.retromae.mini_batch_size=128"
    with pytest.raises(LaunchError, match=f"--set {setting}. Give --fit to apply it"):
        _ready(recipe, tmp_path / "recipe.json")
    fitted, record, lines = _ready(recipe, tmp_path / "recipe.json", fit=True)
    assert record == [{"set": setting, "was": None}]
    assert lines == [f"to fit this GPU: {setting}"]
    assert fitted == load_recipe("mar-0.3b-4b", [setting])
    assert _ready(fitted, tmp_path / "recipe.json")[:2] == (fitted, [])
    for device, fit in ((H100, False), (None, None)):
        assert _ready(recipe, tmp_path / "recipe.json", device, fit)[:2] == (recipe, [])
    whole = load_recipe("mar-0.3b-4b", ["stages.document-init.lora_r=null"])
    with pytest.raises(LaunchError, match=r"stage document-init needs .* An adapter fits"):
        _ready(whole, tmp_path / "recipe.json", Device(None, None, 39.4), fit=True)


@pytest.mark.slow
def test_a_fitted_setting_is_kept_when_a_run_is_resumed(tmp_path):
    marker, recipe = tmp_path / "recipe.json", load_recipe("mar-0.3b-4b")
    small, record, _ = _ready(recipe, marker, Device(None, None, 39.4), fit=True)
    marker.write_text(json.dumps({**small.model_dump(mode="json"), "fit": record}))
    # Resumed on a larger GPU, with and without --fit, or on none: the stages that were begun are the same.
    for device, fit in ((H100, None), (H100, True), (None, None)):
        again, kept, lines = _ready(recipe, marker, device, fit)
        assert (again, kept) == (small, record)
        assert any("as before" in line for line in lines)
    # On a still smaller one it is changed further, and is still known to be a change.
    with pytest.raises(LaunchError, match="Give --fit to apply it"):
        _ready(recipe, marker, Device(None, None, 20), fit=None)
    smaller, further, _ = _ready(recipe, marker, Device(None, None, 20), fit=True)
    assert smaller != small
    retromae = [entry for entry in further if entry["set"].startswith("stages.retromae.mini_batch_size")]
    assert [entry["was"] for entry in retromae] == [None]
    # What the user sets comes first.
    own = load_recipe("mar-0.3b-4b", ["stages.retromae.mini_batch_size=4"])
    assert _ready(own, marker, None)[0].stages[0].mini_batch_size == 4


@pytest.mark.thorough
def test_a_fitted_run_records_its_changes_and_is_resumed_without_fit(recipe_file, tmp_path, monkeypatch):
    recipe, out = load_recipe(recipe_file, ["stages.query-init.epochs=0.4"]), tmp_path / "run"
    peak = plan(recipe).stages[0].memory["peak"] / 2**30
    monkeypatch.setattr("mar_st.runs.train.device_here", lambda: Device(None, None, peak * 0.9))
    with pytest.raises(LaunchError, match=r"--set stages\.query-init\."):
        train(recipe, out, until="query-init", say=lambda line: None)
    train(recipe, out, until="query-init", say=lambda line: None, fit=True)
    written = json.loads((out / "recipe.json").read_text())
    (entry,) = written[FIT_KEY]
    assert entry["set"].startswith("stages.query-init.")
    monkeypatch.setattr("mar_st.runs.train.device_here", lambda: None)
    lines = []
    train(recipe, out, until="query-init", say=lines.append)
    assert any("as before, to fit: stages.query-init." in line for line in lines)
    assert lines[-1] == "stage query-init: finished before, kept"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"name": "other"}', "holds a run of another recipe"),
        ("[]", "holds a run of another recipe"),
        ('{"name": "mar-mi', r"recipe\.json is damaged"),
        ("\0" * 9, r"recipe\.json is damaged"),
    ],
)
def test_a_folder_of_another_recipe_is_refused_first(tmp_path, content, message):
    (tmp_path / "recipe.json").write_text(content)
    with pytest.raises(TrainError, match=message):
        train(load_recipe("mar-mini"), tmp_path, say=lambda line: None)
